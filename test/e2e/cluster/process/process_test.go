package process

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab"
)

func newHost(t *testing.T) *lab.Host {
	t.Helper()
	testutil.Privileged(t)
	l, err := lab.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	e, err := l.AddExternal("host")
	if err != nil {
		t.Fatal(err)
	}
	return e.Host
}

func TestProcessRunsInItsHostAndTellsHowItEnded(t *testing.T) {
	h := newHost(t)
	p, err := Start(h, filepath.Join(t.TempDir(), "log"), exec.Command("sh", "-c", "readlink /proc/self/ns/net; exit 3"))
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Tail(1); !strings.HasPrefix(got, "net:[") || got == own {
		t.Errorf("it ran in %s; the test runs in %s", got, own)
	}
	if err := p.Err(); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("it ended with %v, want exit status 3", err)
	}
}

func TestTerminateKillsWhatDoesNotListen(t *testing.T) {
	h := newHost(t)
	dir := t.TempDir()
	deaf, err := Start(h, filepath.Join(dir, "deaf"), exec.Command("sh", "-c", "trap '' TERM; echo ready; while :; do read x < /dev/null; done"))
	if err != nil {
		t.Fatal(err)
	}
	testutil.WaitFor(t, time.Minute, "the process to be deaf", func() bool { return deaf.Tail(1) == "ready" })
	if err := deaf.Terminate(50 * time.Millisecond); err == nil {
		t.Error("a process that ignores SIGTERM ended by it")
	}
	if err := unix.Kill(deaf.PID(), 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("it is still there: %v", err)
	}
	polite, err := Start(h, filepath.Join(dir, "polite"), exec.Command("sh", "-c", "trap 'exit 0' TERM; echo ready; while :; do read x < /dev/null; done"))
	if err != nil {
		t.Fatal(err)
	}
	testutil.WaitFor(t, time.Minute, "the process to listen", func() bool { return polite.Tail(1) == "ready" })
	if err := polite.Terminate(time.Minute); err != nil {
		t.Error(err)
	}
}

func TestRemoveDirUnmountsWhatIsInIt(t *testing.T) {
	testutil.Privileged(t)
	dir, err := NewDir()
	if err != nil {
		t.Fatal(err)
	}
	inner := filepath.Join(dir, "bpf")
	if err := os.Mkdir(inner, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("bpf", inner, "bpf", 0, ""); err != nil {
		t.Fatal(err)
	}
	removed, err := RemoveLeftovers()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range removed {
		if name == dir {
			t.Errorf("%s is ours and was removed", dir)
		}
	}
	if err := RemoveDir(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", dir, err)
	}
}
