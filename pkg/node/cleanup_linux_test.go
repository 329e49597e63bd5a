package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/config"
)

// The instance's lock and its directory are what margay run needs, too, when it changes to iptables: its errors name what was tried, not
// a command.
func TestErrorsOfALockedInstanceNameWhatWasTried(t *testing.T) {
	testutil.Privileged(t)
	testutil.NetNS(t).Enter(t) // chains would be removed if the lock did not hold that back
	c := config.Defaults()
	c.BPFFS = t.TempDir()
	c.Socket = filepath.Join(c.BPFFS, "none")
	dir := bpfmaps.InstanceDir(c.BPFFS, c.Instance)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	unlock, err := lockInstance(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := "lock " + dir + ": another agent of this instance is running: stop it first"
	if _, err := afterBPF(c, &held{}, nil, nil, nil); err == nil || err.Error() != want {
		t.Errorf("run with iptables: %v, want %s", err, want)
	}
	if removed, err := Cleanup(t.Context(), c); err == nil || err.Error() != want || len(removed) > 0 {
		t.Errorf("remove all: %v, %v, want %s", removed, err, want)
	}
	if err := unlock(); err != nil {
		t.Error(err)
	}
}

func TestCleanupLeavesAFileThatIsNoSocketAlone(t *testing.T) {
	testutil.Privileged(t)
	testutil.NetNS(t).Enter(t)
	c := config.Defaults()
	c.BPFFS = t.TempDir()
	c.Socket = filepath.Join(t.TempDir(), "policies.yaml")
	if err := os.WriteFile(c.Socket, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if removed, err := Cleanup(t.Context(), c); err == nil || !strings.Contains(err.Error(), c.Socket+" is no socket") {
		t.Errorf("removed %v, %v", removed, err)
	}
	if left, err := os.ReadFile(c.Socket); err != nil || string(left) != "precious" {
		t.Errorf("the file afterwards: %q, %v", left, err)
	}
}
