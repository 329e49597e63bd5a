package cli

import (
	"bytes"
	"strings"
	"testing"
)

// An agent could not have the name, so neither run nor a tool looks for it.
func TestANameThatNoAgentCanHaveIsRefused(t *testing.T) {
	for _, args := range [][]string{
		{"run", "--dir", "/", "--instance", "v1.2"}, {"explain", "a/b", "c/d", "--instance", "v1.2"}, {"config", "--instance", "a/b"},
		{"check", "--instance", "a b"},
	} {
		var out bytes.Buffer
		status := execute(t.Context(), args, &out, &out)
		if status != 2 || !strings.Contains(out.String(), "instance") || !strings.Contains(out.String(), "want at most 64 letters, digits, - and _") {
			t.Errorf("%q: status %d: %s", args, status, out.String())
		}
	}
}
