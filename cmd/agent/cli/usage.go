package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/margay-project/margay/pkg/config"
)

// Groups of flags, in the order of --help. Flags in none of them are the command's own.
const (
	groupSelection   = "Selection"
	groupOutput      = "Output"
	groupAgent       = string(config.GroupAgent)
	groupSource      = string(config.GroupObjects)
	groupEnforcement = string(config.GroupEnforcement)
	groupLimits      = string(config.GroupLimits)
	groupReporting   = string(config.GroupReporting)
	groupOther       = "Other"
)

// groupAnnotation names a flag's group.
const groupAnnotation = "margay-group"

var groupOrder = []string{"", groupSource, groupEnforcement, groupLimits, groupReporting, groupSelection, groupOutput, groupAgent, groupOther}

// grouped puts flags of the set into a group of --help.
func grouped(flags *pflag.FlagSet, group string, names ...string) {
	for _, name := range names {
		if f := flags.Lookup(name); f != nil {
			if f.Annotations == nil {
				f.Annotations = map[string][]string{}
			}
			f.Annotations[groupAnnotation] = []string{group}
		}
	}
}

func groupOf(f *pflag.Flag) string {
	switch f.Name {
	case "help", "version":
		return groupOther
	case "color":
		return groupOutput
	}
	if g := f.Annotations[groupAnnotation]; len(g) > 0 {
		return g[0]
	}
	return ""
}

// usage writes what --help says after the description: flags in groups.
func usage(cmd *cobra.Command) error {
	var b strings.Builder
	b.WriteString("Usage:\n")
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "  %s COMMAND\n", cmd.CommandPath())
	} else {
		fmt.Fprintf(&b, "  %s\n", cmd.UseLine())
	}
	if len(cmd.Aliases) > 0 {
		fmt.Fprintf(&b, "\nAliases:\n  %s\n", strings.Join(append([]string{cmd.Name()}, cmd.Aliases...), ", "))
	}
	if cmd.HasExample() {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", cmd.Example)
	}
	writeCommands(&b, cmd)
	flags := map[string]*pflag.FlagSet{}
	note := func(f *pflag.Flag) {
		group := groupOf(f)
		if flags[group] == nil {
			flags[group] = pflag.NewFlagSet("", pflag.ContinueOnError)
		}
		flags[group].AddFlag(f)
	}
	cmd.LocalFlags().VisitAll(note)
	cmd.InheritedFlags().VisitAll(note)
	for _, group := range groupOrder {
		if flags[group] == nil || !flags[group].HasAvailableFlags() {
			continue
		}
		title := "Flags"
		if group != "" {
			title = group
		}
		fmt.Fprintf(&b, "\n%s:\n%s", title, flags[group].FlagUsages())
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\n%s COMMAND --help says more about a command.\n", cmd.CommandPath())
	}
	_, err := io.WriteString(cmd.OutOrStderr(), b.String())
	return err
}

func writeCommands(b *strings.Builder, cmd *cobra.Command) {
	if !cmd.HasAvailableSubCommands() {
		return
	}
	b.WriteString("\nCommands:\n")
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() || c.Name() == "help" {
			fmt.Fprintf(b, "  %-*s  %s\n", cmd.NamePadding(), c.Name(), c.Short)
		}
	}
}
