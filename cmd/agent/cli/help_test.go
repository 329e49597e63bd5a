//go:build linux

package cli

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// TestHelpFitsATerminal: no line of a description or an example is wider than 120 columns.
func TestHelpFitsATerminal(t *testing.T) {
	const most = 120
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		for line := range strings.Lines(c.Long + "\n" + c.Example) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > most {
				t.Errorf("%s --help has a line of %d columns, more than %d: %s", c.CommandPath(), n, most, line)
			}
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root())
}
