//go:build linux

package cli

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/margay-project/margay/bpf"
)

const operations = "../../../docs/operations.md"

// TestFlagsAreDocumented: the tables of flags in docs/operations.md are what the commands have. With -update they are
// written.
func TestFlagsAreDocumented(t *testing.T) {
	before, err := os.ReadFile(operations)
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile(`(?s)<!-- flags ([a-z ]+) -->\n.*?<!-- end -->`)
	found := 0
	after := block.ReplaceAllStringFunc(string(before), func(text string) string {
		found++
		command := block.FindStringSubmatch(text)[1]
		return fmt.Sprintf("<!-- flags %s -->\n%s<!-- end -->", command, flagTable(t, command))
	})
	if found < 4 {
		t.Errorf("%d tables of flags, want 4", found)
	}
	if *update {
		if err := os.WriteFile(operations, []byte(after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(before), after); diff != "" {
		t.Errorf("go test ./cmd/agent/cli -run Documented -update writes this (-documented +flags):\n%s", diff)
	}
}

// tools are the commands that are about an agent, those below show apart.
func tools() []*cobra.Command {
	var all []*cobra.Command
	for _, c := range root().Commands() {
		if c.Name() != "run" && c.Flags().Lookup("socket") != nil {
			all = append(all, c)
		}
	}
	return all
}

// sharedFlags are those that all tools and all commands of show have, in the words of the first.
func sharedFlags(t *testing.T) *pflag.FlagSet {
	t.Helper()
	show, _, err := root().Find([]string{"show"})
	if err != nil {
		t.Fatal(err)
	}
	all := append(tools(), show.Commands()...)
	shared := pflag.NewFlagSet("", pflag.ContinueOnError)
	all[0].Flags().VisitAll(func(f *pflag.Flag) {
		if !slices.ContainsFunc(all, func(c *cobra.Command) bool { return c.Flags().Lookup(f.Name) == nil }) {
			shared.AddFlag(f)
		}
	})
	return shared
}

// flagTable is the table of a command's flags. "shared" are those that all tools have, which the tables of explain and check leave out.
func flagTable(t *testing.T, command string) string {
	t.Helper()
	shared := sharedFlags(t)
	if command == "shared" {
		return flagRows(shared, pflag.NewFlagSet("", pflag.ContinueOnError))
	}
	cmd, rest, err := root().Find(strings.Fields(command))
	if err != nil || len(rest) > 0 {
		t.Fatalf("no command %q: %v", command, err)
	}
	if command == "run" {
		shared = pflag.NewFlagSet("", pflag.ContinueOnError)
	}
	return flagRows(cmd.Flags(), shared)
}

func flagRows(flags, without *pflag.FlagSet) string {
	var b strings.Builder
	b.WriteString("| flag | environment | default | |\n|---|---|---|---|\n")
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" || f.Hidden || without.Lookup(f.Name) != nil {
			return
		}
		name := "`--" + f.Name + "`"
		if f.Shorthand != "" {
			name += ", `-" + f.Shorthand + "`"
		}
		environment := ""
		if name := variable(f); name != "" {
			environment = "`" + name + "`"
		}
		value := f.DefValue
		if value != "" && value != "[]" {
			value = "`" + value + "`"
		} else {
			value = ""
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", name, environment, value, f.Usage)
	})
	return b.String()
}

// TestToolsAreDocumented: the sentence before the shared flags names every tool, and no other command.
func TestToolsAreDocumented(t *testing.T) {
	text, err := os.ReadFile(operations)
	if err != nil {
		t.Fatal(err)
	}
	before, _, ok := strings.Cut(string(text), "<!-- flags shared -->")
	sentence := before[max(0, strings.LastIndex(before, "\n\nAll of ")):]
	got := map[string]bool{}
	for _, m := range regexp.MustCompile("`margay ([a-z]+)`").FindAllStringSubmatch(sentence, -1) {
		got[m[1]] = true
	}
	want := map[string]bool{"show": true}
	for _, tool := range tools() {
		want[tool.Name()] = true
	}
	if diff := cmp.Diff(want, got); diff != "" || !ok {
		t.Errorf("%s, %q (-tools +documented):\n%s", operations, sentence, diff)
	}
}

func TestDropReasonsAreDocumented(t *testing.T) {
	text, err := os.ReadFile(operations)
	if err != nil {
		t.Fatal(err)
	}
	for r := 1; r < bpf.Reasons(); r++ {
		if label := bpf.Label(bpf.DropReason(r)); !strings.Contains(string(text), "| `"+label+"` |") {
			t.Errorf("reason %s is not in %s", label, operations)
		}
	}
}
