package main

import (
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// root is the command line: one file per verb.
func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "margay",
		Short:         "Network policy for Kubernetes nodes, enforced with eBPF",
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return fromEnvironment(cmd)
		},
	}
	cmd.CompletionOptions.HiddenDefaultCmd = true
	cmd.AddCommand(explainCommand(), checkCommand(), versionCommand())
	cmd.AddCommand(linuxCommands()...)
	return cmd
}

// newLogger writes text to a terminal and JSON otherwise, to standard error.
func newLogger(level slog.Level) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if term.IsTerminal(int(os.Stderr.Fd())) {
		return slog.New(slog.NewTextHandler(os.Stderr, options))
	}
	return slog.New(slog.NewJSONHandler(os.Stderr, options))
}
