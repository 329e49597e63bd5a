package cli

import (
	"bytes"
	"path/filepath"
	"syscall"
	"testing"
)

// TestUnreadableManifestsAreNamedWithARemedy: each command that reads manifests names what it could not read, and what to do.
func TestUnreadableManifestsAreNamedWithARemedy(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	for _, args := range [][]string{
		{"check", "--dir", none}, {"explain", "--dir", none, "a/b", "c/d"}, {"config", "--local", "--datastore", "directory", "--dir", none},
		{"show", "policies", "--dir", none}, {"show", "policies", "--dir", none, "--for", "a/b"},
	} {
		var out bytes.Buffer
		want := "margay: read the directory of manifests " + none + ": no such file or directory; --dir (the setting dir) must name a directory that exists\n"
		if code := execute(t.Context(), args, &out, &out); code != 2 || out.String() != want {
			t.Errorf("%q: exit status %d, %s", args, code, &out)
		}
	}
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, why := range map[string]string{none: "no such file or directory", fifo: "not a regular file"} {
		var out bytes.Buffer
		want := "margay: read manifests from " + name + ": " + why + "; want a file or directory that exists, or - for standard input\n"
		if code := execute(t.Context(), []string{"check", name}, &out, &out); code != 2 || out.String() != want {
			t.Errorf("%s: exit status %d, %s", name, code, &out)
		}
	}
}
