package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/margay-project/margay/pkg/config"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/node"
)

// instanceFlags tell which agent of this machine a command is about.
type instanceFlags struct {
	instance string
	bpffs    string
	socket   string
}

// instanceFlag is a flag with the name of an agent.
type instanceFlag string

// Set implements pflag.Value.
func (f *instanceFlag) Set(text string) error {
	name, err := config.ParseInstance(text)
	if err == nil {
		*f = instanceFlag(name)
	}
	return err
}

// String implements pflag.Value.
func (f *instanceFlag) String() string { return string(*f) }

// Type implements pflag.Value.
func (f *instanceFlag) Type() string { return "string" }

// socketFlag is a flag with the path of an agent's socket.
type socketFlag string

// Set implements pflag.Value.
func (f *socketFlag) Set(text string) error {
	path, err := config.ParseSocket(text)
	if err == nil {
		*f = socketFlag(path)
	}
	return err
}

// String implements pflag.Value.
func (f *socketFlag) String() string { return string(*f) }

// Type implements pflag.Value.
func (f *socketFlag) Type() string { return "string" }

func (f *instanceFlags) register(flags *pflag.FlagSet) {
	flags.Var((*instanceFlag)(&f.instance), "instance", "name of the agent, if several run on this machine")
	flags.StringVar(&f.bpffs, "bpffs", config.Defaults().BPFFS, "mount point of the BPF file system")
	flags.Var((*socketFlag)(&f.socket), "socket", "unix socket of the agent (default /run/margay[-INSTANCE]/agent.sock)")
	grouped(flags, groupAgent, "instance", "bpffs", "socket")
	meanSettings(flags, "instance", "bpffs", "socket")
}

func (f *instanceFlags) socketPath() string { return node.Socket(f.config()) }

// config returns the defaults with what the flags say of the agent.
func (f *instanceFlags) config() config.Config {
	c := config.Defaults()
	c.Instance, c.BPFFS, c.Socket = f.instance, f.bpffs, f.socket
	return c
}

// silence is how long an agent may be silent before a tool reports that it still waits.
const silence = 5 * time.Second

// ask asks this agent.
func (f *instanceFlags) ask(ctx context.Context, path string, parameters url.Values) (*inspect.Answer, error) {
	return f.askWithin(ctx, inspect.Patience, path, parameters)
}

// askWithin is ask for an answer that may take as long as limit.
func (f *instanceFlags) askWithin(ctx context.Context, limit time.Duration, path string, parameters url.Values) (*inspect.Answer, error) {
	return f.askAloud(ctx, limit, path, parameters, os.Stderr, silence)
}

// askAloud is askWithin, which says on w that it still waits once that has been so for a time.
func (f *instanceFlags) askAloud(ctx context.Context, limit time.Duration, path string, parameters url.Values, w io.Writer, after time.Duration) (*inspect.Answer, error) {
	defer f.waiting(w, after).Stop()
	answer, err := inspect.Client{Socket: f.socketPath()}.AskWithin(ctx, limit, path, parameters)
	return answer, f.explain(err)
}

// waiting says on w after a time, unless it is stopped before, that the tool still waits for the agent.
func (f *instanceFlags) waiting(w io.Writer, after time.Duration) *time.Timer {
	return time.AfterFunc(after, func() {
		fmt.Fprintf(w, "margay: the agent on %s has not answered yet, still waiting; policy stays enforced meanwhile\n", f.socketPath())
	})
}

// explain says what to do about an agent that cannot be asked.
func (f *instanceFlags) explain(err error) error {
	if errors.Is(err, inspect.ErrNotRunning) {
		if how := iptablesWithout(); how != "" {
			return fmt.Errorf("%w, and %s", err, how)
		}
		return fmt.Errorf("%w: start it with margay run, or say which one with --instance or --socket", err)
	}
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: only root may ask the agent", err)
	}
	return err
}

// notAnswering reports whether what is enforced has to be read from the maps: no agent runs, or the one that runs has no objects yet or is
// silent.
func notAnswering(err error) bool {
	return errors.Is(err, inspect.ErrNotRunning) || errors.Is(err, inspect.ErrNoSnapshot) || errors.Is(err, inspect.ErrSilent)
}

// settingAnnotation marks the flag of a tool that means a setting of the agent it is used beside.
const settingAnnotation = "margay-setting"

// meanSettings marks flags that mean the settings of the same names. Those have the settings' variables; all other flags of
// tools are set on the command line alone.
func meanSettings(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		_ = flags.SetAnnotation(name, settingAnnotation, []string{name}) // fails for a flag that is not registered only
	}
}

// variable is the environment variable of a flag; empty: it has none.
func variable(f *pflag.Flag) string {
	if of, ok := f.Value.(*settingFlag); ok {
		return of.setting.Environment()
	}
	if f.Annotations[settingAnnotation] == nil {
		return ""
	}
	return config.Setting{Name: f.Name}.Environment()
}

// fromEnvironment sets the flags that mean a setting and were not given from its variable, if there is one. Flags that are
// settings are left to their layers.
func fromEnvironment(cmd *cobra.Command) error {
	var err error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Annotations[settingAnnotation] == nil || f.Changed || err != nil {
			return
		}
		value := config.FromEnvironment(os.Environ(), f.Name)
		if value == "" {
			return
		}
		if e := cmd.Flags().Set(f.Name, value); e != nil {
			err = fmt.Errorf("environment variable %s: %w", variable(f), e)
		}
	})
	return err
}
