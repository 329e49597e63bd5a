package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestAFileThatIsBeingWrittenIsNotTaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "margay.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("interface-prefix: eni\n")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		files := followFile(ctx, path, false)
		want := func(when, text string) {
			t.Helper()
			select {
			case f := <-files:
				if text == "" || string(f.Text) != text {
					t.Errorf("%s: %q", when, f.Text)
				}
			case <-time.After(lookAgain + quietFor - time.Millisecond):
				if text != "" {
					t.Errorf("%s: nothing", when)
				}
			}
		}
		time.Sleep(lookAgain - time.Millisecond)
		write("")
		time.Sleep(quietFor)
		write("interface-prefix: eni\nlog-level: debug\n")
		want("written", "interface-prefix: eni\nlog-level: debug\n")
		want("as it was", "")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		select {
		case f := <-files:
			if f != nil {
				t.Errorf("gone: %q", f.Text)
			}
		case <-time.After(lookAgain + quietFor + time.Millisecond):
			t.Error("gone: nothing")
		}
	})
}

// TestAFileThatCannotBeReadIsDelivered: an agent that started with it would end at once, so it is a problem and not only a line of log.
func TestAFileThatCannotBeReadIsDelivered(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		required bool
		breakIt  func(path string) error
		want     string // empty: the file is gone, and that is allowed
	}{
		{true, os.Remove, "no such file or directory"},
		{false, os.Remove, ""},
		{false, func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) }, "is a directory"},
		{false, func(path string) error { return errors.Join(os.Remove(path), os.Symlink(path, path)) }, "too many levels"},
	} {
		path := filepath.Join(dir, "margay.yaml")
		if err := errors.Join(os.RemoveAll(path), os.WriteFile(path, []byte("log-level: warn\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			files := followFile(ctx, path, tt.required)
			if err := tt.breakIt(path); err != nil {
				t.Fatal(err)
			}
			f := <-files
			if tt.want == "" && f != nil || tt.want != "" && (f == nil || f.Err == nil || !strings.Contains(f.Err.Error(), path+": "+tt.want)) {
				t.Errorf("required %t: %+v, want %q", tt.required, f, tt.want)
			}
			select {
			case f := <-files:
				t.Errorf("again: %+v", f)
			case <-time.After(time.Minute):
			}
			if err := errors.Join(os.RemoveAll(path), os.WriteFile(path, []byte("log-level: warn\n"), 0o600)); err != nil {
				t.Fatal(err)
			}
			if f := <-files; f == nil || f.Err != nil || string(f.Text) != "log-level: warn\n" {
				t.Errorf("corrected: %+v", f)
			}
		})
	}
}
