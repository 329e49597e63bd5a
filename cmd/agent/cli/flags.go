package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/margay-project/margay/pkg/config"
	"github.com/margay-project/margay/pkg/inspect"
)

// defaultMarkMask is the one of mark-mask.
var defaultMarkMask = fmt.Sprintf("%#08x", config.Defaults().MarkMask)

// instanceFlags tell which agent of this machine a command is about.
type instanceFlags struct {
	instance string
	bpffs    string
	socket   string
}

func (f *instanceFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.instance, "instance", "", "name of the agent, if several run on this machine")
	flags.StringVar(&f.bpffs, "bpffs", config.Defaults().BPFFS, "where the BPF file system is, or is to be mounted")
	flags.StringVar(&f.socket, "socket", "", "unix socket of the agent (default /run/margay[-INSTANCE]/agent.sock)")
	grouped(flags, groupAgent, "instance", "bpffs", "socket")
}

func (f *instanceFlags) socketPath() string {
	if f.socket != "" {
		return f.socket
	}
	dir := "margay"
	if f.instance != "" {
		dir += "-" + f.instance
	}
	return filepath.Join("/run", dir, "agent.sock")
}

// ask asks this agent.
func (f *instanceFlags) ask(ctx context.Context, path string, parameters url.Values) (*inspect.Answer, error) {
	answer, err := inspect.Client{Socket: f.socketPath()}.Ask(ctx, path, parameters)
	return answer, f.explain(err)
}

// explain says what to do about an agent that cannot be asked.
func (f *instanceFlags) explain(err error) error {
	if errors.Is(err, inspect.ErrNotRunning) {
		return fmt.Errorf("%w: start it with margay run, or say which one with --instance or --socket", err)
	}
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: only root may ask the agent", err)
	}
	return err
}

// notEnvironment marks flags that only the command line sets.
const notEnvironment = "margay-not-from-environment"

// notFromEnvironment keeps what an agent's environment says from changing what a tool does beside it.
func notFromEnvironment(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		if f := flags.Lookup(name); f != nil {
			if f.Annotations == nil {
				f.Annotations = map[string][]string{}
			}
			f.Annotations[notEnvironment] = []string{"true"}
		}
	}
}

// environmentName is the variable that sets a flag.
func environmentName(flag string) string {
	return config.EnvironmentPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// fromEnvironment sets every flag that was not given from its MARGAY_ variable, if there is one. Settings are left to
// their layers.
func fromEnvironment(cmd *cobra.Command) error {
	var err error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Annotations[notEnvironment] != nil || isSetting(f) {
			return
		}
		name := environmentName(f.Name)
		value, ok := os.LookupEnv(name)
		if !ok || f.Changed || err != nil {
			return
		}
		if e := cmd.Flags().Set(f.Name, value); e != nil {
			err = fmt.Errorf("environment variable %s: %w", name, e)
		}
	})
	return err
}
