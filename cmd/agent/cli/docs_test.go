//go:build linux

package cli

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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

func flagTable(t *testing.T, command string) string {
	t.Helper()
	cmd, rest, err := root().Find(strings.Fields(command))
	if err != nil || len(rest) > 0 {
		t.Fatalf("no command %q: %v", command, err)
	}
	shared := pflag.NewFlagSet("", pflag.ContinueOnError)
	if command == "explain" || command == "check" {
		var instance instanceFlags
		var output outputFlag
		instance.register(shared)
		output.register(shared)
	}
	var b strings.Builder
	b.WriteString("| flag | environment | default | |\n|---|---|---|---|\n")
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" || f.Hidden || shared.Lookup(f.Name) != nil {
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
