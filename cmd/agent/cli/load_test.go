//go:build unix

package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestCheckReadsRegularFilesOnly has files that never end, or never begin, among the manifests.
func TestCheckReadsRegularFilesOnly(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/zero", filepath.Join(dir, "zero.yaml")); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	done := make(chan int)
	go func() { done <- execute(t.Context(), []string{"check", "--dir", dir}, &out, &out) }()
	select {
	case code := <-done:
		if code != 1 || strings.Count(out.String(), "not a regular file") != 2 {
			t.Errorf("exit status %d, want 1 and two files that are refused:\n%s", code, &out)
		}
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
}

// Whoever adds a file to a directory of manifests chooses its name, but writes no line of its own with it.
func TestNamesOfFilesAreWrittenInOneLine(t *testing.T) {
	m := manifests{ignored: []string{"x\ncheck: all is well.txt", "\x1b[2Jy.txt"}}
	if note := m.ignoredNote(); strings.ContainsAny(note, "\n\x1b") || !strings.Contains(note, `x\ncheck`) {
		t.Errorf("%q", note)
	}
}
