package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// defaultBPFFS is where the BPF file system is mounted by custom.
const defaultBPFFS = "/sys/fs/bpf"

// envPrefix starts every environment variable: --datastore is MARGAY_DATASTORE.
const envPrefix = "MARGAY_"

// instanceFlags tell which agent of this machine a command is about.
type instanceFlags struct {
	instance string
	bpffs    string
	socket   string
}

func (f *instanceFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.instance, "instance", "", "name of the agent, if several run on this machine")
	fs.StringVar(&f.bpffs, "bpffs", defaultBPFFS, "where the BPF file system is, or is to be mounted")
	fs.StringVar(&f.socket, "socket", "", "unix socket of the agent (default /run/margay[-INSTANCE]/agent.sock)")
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

// fromEnvironment sets every flag that was not given from its MARGAY_ variable, if there is one.
func fromEnvironment(cmd *cobra.Command) error {
	var err error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		name := envPrefix + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
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
