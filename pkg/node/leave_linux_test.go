package node

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/margay-project/margay/pkg/config"
)

// A start that could not even make its directory has left nothing behind, and says nothing of it.
func TestAStartThatMadeNothingLeavesNothing(t *testing.T) {
	at := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(at, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := config.Defaults()
	c.BPFFS, c.Socket = at, filepath.Join(t.TempDir(), "agent.sock")
	var log bytes.Buffer
	FindStartState(c).Restore(slog.New(slog.NewTextHandler(&log, nil)))
	if log.Len() > 0 {
		t.Errorf("logged: %s", log.String())
	}
}
