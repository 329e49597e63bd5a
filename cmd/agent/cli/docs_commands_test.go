//go:build linux

package cli

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// commandLine is a command line of margay in a document.
type commandLine struct {
	args  []string
	whole bool // it is written to be typed; in running text values and operands may be left out
}

var (
	fence = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	span  = regexp.MustCompile("`([^`]+)`")
	env   = regexp.MustCompile(`^[A-Z_]+=\S*$`)
)

// commandLines are those of a document: lines of blocks that are commands, and code in running text.
func commandLines(text string) []commandLine {
	var found []commandLine
	for _, block := range fence.FindAllString(text, -1) {
		for line := range strings.Lines(block) {
			if args := margayArgs(line); args != nil {
				found = append(found, commandLine{args, true})
			}
		}
	}
	for _, m := range span.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		if args := margayArgs(m[1]); args != nil {
			found = append(found, commandLine{args, false})
		}
	}
	return found
}

// margayArgs are the arguments of margay in a line; nil: the line does not run it.
func margayArgs(line string) []string {
	line, _, _ = strings.Cut(line, "  #")
	line, _, _ = strings.Cut(line, " < ")
	if strings.Contains(line, "margay()") {
		return nil // the shell function of docs/troubleshooting.md
	}
	for _, before := range []string{" -- margay ", "| margay ", "ExecStart=/usr/local/bin/margay "} {
		if _, rest, ok := strings.Cut(line, before); ok {
			return strings.Fields(rest)
		}
	}
	words := strings.Fields(line)
	for len(words) > 0 && (words[0] == "$" || words[0] == "sudo" || env.MatchString(words[0])) {
		words = words[1:]
	}
	if len(words) < 2 || path.Base(words[0]) != "margay" || strings.HasSuffix(words[0], "/pkg/margay") {
		return nil
	}
	return words[1:]
}

// check parses a command line as margay would.
func (c commandLine) check() error {
	top := root()
	top.InitDefaultCompletionCmd()
	args, cut := c.args, slices.Index(c.args, "…")
	if cut >= 0 {
		args = args[:cut]
	}
	cmd, rest, err := top.Find(args)
	if err != nil {
		return err
	}
	if !c.whole || cut >= 0 {
		if cmd.HasSubCommands() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
			return fmt.Errorf("%s has no command %q", cmd.CommandPath(), rest[0])
		}
		return flagsExist(cmd, rest)
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

func flagsExist(cmd *cobra.Command, args []string) error {
	for _, arg := range args {
		name, isLong := strings.CutPrefix(arg, "--")
		name, _, _ = strings.Cut(name, "=")
		short, isShort := strings.CutPrefix(arg, "-")
		switch {
		case isLong && cmd.Flag(name) == nil && cmd.InheritedFlags().Lookup(name) == nil && name != "help" && name != "version",
			!isLong && isShort && short != "" && cmd.Flags().ShorthandLookup(short[:1]) == nil:
			return fmt.Errorf("%s has no flag %s", cmd.CommandPath(), arg)
		}
	}
	return nil
}

// TestCommandLinesInDocumentsParse: what documents say to type exists, with its flags, and is accepted as it is written.
func TestCommandLinesInDocumentsParse(t *testing.T) {
	total := 0
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/adr/*.md", "examples/*.md", "deploy/helm/margay/*.md", "test/*/*.md"} {
		files, err := filepath.Glob(filepath.Join("../../..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range commandLines(string(text)) {
				total++
				if err := c.check(); err != nil {
					t.Errorf("%s: margay %s: %v", file, strings.Join(c.args, " "), err)
				}
			}
		}
	}
	if total < 200 {
		t.Errorf("%d command lines were found, want at least 200", total)
	}
}

func TestCommandLinesThatAreWrongAreFound(t *testing.T) {
	for text, want := range map[string]string{
		"`margay shwo endpoints`":                                 "no command",
		"`margay show endpoint-list`":                             "no command",
		"`margay show\nendpoints --frobnicate`":                   "no flag --frobnicate",
		"`margay check --dir`":                                    "",
		"```\n$ margay check --dir\n```":                          "needs an argument",
		"```\nmargay explain shop/web\n```":                       "want SRC and DST",
		"```\nkubectl exec x -- margay show pods -n a   # b\n```": "",
		"```\nkubectl get x | margay check --node -\n```":         "unknown flag",
		"`kubectl exec daemonset/margay -- margay explain …`":     "",
	} {
		lines := commandLines(text)
		if len(lines) != 1 {
			t.Errorf("%q: %d command lines", text, len(lines))
			continue
		}
		if err := lines[0].check(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}
