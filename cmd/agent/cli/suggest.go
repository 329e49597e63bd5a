package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/margay-project/margay/pkg/suggest"
)

// subcommandOnly is the Args function of a command that only has others below it: an unknown command is answered with
// the ones that may be meant.
func subcommandOnly(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return fmt.Errorf("%s: did you mean %s?", text, orList(near))
	}
	return fmt.Errorf("%s; see %s --help", text, cmd.CommandPath())
}

// knownCommandsOnly has help and completion, which cobra makes, answer an unknown command as others do. The output of cmd must be set: that of
// completion is its.
func knownCommandsOnly(cmd *cobra.Command) {
	cmd.InitDefaultHelpCmd()
	cmd.InitDefaultCompletionCmd()
	for _, c := range cmd.Commands() {
		switch c.Name() {
		case "completion":
			c.Args, c.RunE = subcommandOnly, help
		case "help":
			c.Run, c.RunE = nil, helpAbout
		}
	}
}

// helpAbout prints the help of the command that the arguments name.
func helpAbout(cmd *cobra.Command, args []string) error {
	about, rest, err := cmd.Root().Find(args)
	if err != nil {
		return err
	}
	if about.HasAvailableSubCommands() {
		if err := subcommandOnly(about, rest); err != nil {
			return err
		}
	}
	about.InitDefaultHelpFlag()
	return about.Help()
}

// noArguments is the Args function of a command that has none. meant is the flag that people look for who give one; empty: there
// is no such flag.
func noArguments(meant string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		text := fmt.Sprintf("%s: unexpected argument %q", strings.TrimPrefix(cmd.CommandPath(), "margay "), args[0])
		if meant != "" {
			return fmt.Errorf("%s; did you mean --%s %s?", text, meant, args[0])
		}
		return fmt.Errorf("%s; see %s --help", text, cmd.CommandPath())
	}
}

// help runs a command that only has others below it.
func help(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// flagError describes the mistake in a flag, and suggests the flag that may be meant.
func flagError(cmd *cobra.Command, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		if near := nearFlag(cmd, unknown.GetSpecifiedName()); near != "" {
			return fmt.Errorf("%w: did you mean --%s?", err, near)
		}
	}
	return fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())
}

// nearFlag is the flag whose name is nearest to the one given; empty: none is near.
func nearFlag(cmd *cobra.Command, name string) string {
	best, least := "", 3
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		d := suggest.Edits(name, f.Name)
		if len(name) > 2 && strings.HasPrefix(f.Name, name) {
			d = 1
		}
		if !f.Hidden && len(name) > 2 && d < least {
			best, least = f.Name, d
		}
	})
	return best
}
