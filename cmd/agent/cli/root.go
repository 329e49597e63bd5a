package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// root is the command line: one file per verb.
func root() *cobra.Command {
	color := "auto"
	cmd := &cobra.Command{
		Use:           "margay",
		Short:         "Network policy for Kubernetes nodes, enforced with eBPF, or with iptables on older kernels",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          subcommandOnly,
		RunE:          help,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := fromEnvironment(cmd); err != nil {
				return err
			}
			cmd.SetOut(newScreen(cmd.OutOrStdout(), color))
			return nil
		},
	}
	cmd.SetFlagErrorFunc(flagError)
	cmd.SetUsageFunc(usage)
	cmd.PersistentFlags().Var(&choice{&color, []string{"auto", "always", "never"}, "when"}, "color", "colours in the output: auto (on a terminal, unless NO_COLOR is set), always or never")
	cmd.Version = thisBuild().String()
	cmd.SetVersionTemplate("{{.Version}}\n")
	cmd.AddCommand(explainCommand(), diffCommand(), checkCommand(), versionCommand())
	cmd.AddCommand(linuxCommands()...)
	completeFlags(cmd)
	return cmd
}

// exactly returns an Args function whose error names the wanted arguments instead of their number.
func exactly(n int, wanted string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return fmt.Errorf("%s: want %s", strings.TrimPrefix(cmd.CommandPath(), "margay "), wanted)
		}
		return nil
	}
}
