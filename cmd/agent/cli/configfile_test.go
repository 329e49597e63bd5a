package cli

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
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
		files := followFile(ctx, path, slog.New(slog.DiscardHandler))
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
