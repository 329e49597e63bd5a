package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"
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

// The kernel has no room for a longer path, and says only "invalid argument" when an agent listens on it, in its log, or a tool asks there.
func TestAPathTooLongForASocketIsRefused(t *testing.T) {
	path := "/run/" + strings.Repeat("x", 103)
	for _, args := range [][]string{{"show", "status", "--socket", path}, {"run", "--dir", t.TempDir(), "--node", "n", "--dataplane", "record", "--socket", path}} {
		var out strings.Builder
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // of an agent that starts all the same
		if code := execute(ctx, args, &out, &out); code != 2 || !strings.Contains(out.String(), "want a path of at most 107 characters, this one has 108") {
			t.Errorf("%s: exit status %d, %s", args[0], code, out.String())
		}
		cancel()
	}
}
