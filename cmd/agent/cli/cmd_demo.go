//go:build linux

package cli

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/margay-project/margay/pkg/demo"
)

func demoCommand() *cobra.Command {
	var o demo.Options
	cleanup := false
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show policy being enforced on pods in network namespaces; needs root, no cluster",
		Long: `Makes six pods in network namespaces (mgy-…), runs an agent and compares what the policy means with what happens.
Removes everything afterwards and changes nothing else of this machine.`,
		Args: noArguments(""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Geteuid() != 0 {
				return fmt.Errorf("demo: network namespaces and BPF need root; run: sudo %s demo", os.Args[0])
			}
			o.Out = cmd.OutOrStdout()
			if cleanup {
				return sweepDemos(o.Out)
			}
			checks, wrong, err := demo.Run(cmd.Context(), o)
			if err != nil {
				return fmt.Errorf("demo: %w", err)
			}
			fmt.Fprintf(o.Out, "\ndemo: %d checks, %d wrong\n", checks, wrong)
			if wrong > 0 {
				return exitCode(1)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&o.Keep, "keep", false, "keep running until interrupted, and print commands to try")
	cmd.Flags().BoolVar(&cleanup, "cleanup", false, "only remove what killed demos have left behind; the next demo does so, too")
	cmd.MarkFlagsMutuallyExclusive("keep", "cleanup")
	return cmd
}

func sweepDemos(w io.Writer) error {
	removed, err := demo.Sweep()
	for _, what := range removed {
		fmt.Fprintln(w, "removed", what)
	}
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if len(removed) == 0 {
		fmt.Fprintln(w, "nothing to remove")
	}
	return nil
}
