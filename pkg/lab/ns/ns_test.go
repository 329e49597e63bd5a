package ns_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab/ns"
)

// privately runs the calling test in another process, which has mounts of its own and an empty ns.Dir. It reports whether the caller is
// that process.
func privately(t *testing.T) bool {
	t.Helper()
	testutil.Privileged(t)
	const private = "MARGAY_TEST_MOUNTS"
	if os.Getenv(private) != "" {
		if err := os.MkdirAll(ns.Dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("none", ns.Dir, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		return true
	}
	c := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	c.Env = append(os.Environ(), private+"=1")
	c.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

// "ip netns add" binds the directory to itself if it is no mount point yet, for example while the demo runs.
func TestANameGoesAlsoBelowALaterMountOfTheDirectory(t *testing.T) {
	if !privately(t) {
		return
	}
	before, err := ns.Create(ns.Prefix + ns.NewID())
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(ns.Dir, ns.Dir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		t.Fatal(err)
	}
	after, err := ns.Create(ns.Prefix + ns.NewID())
	if err != nil {
		t.Fatal(err)
	}
	for _, space := range []*ns.NS{before, after} {
		if err := space.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(filepath.Join(ns.Dir, space.Name())); !os.IsNotExist(err) {
			t.Errorf("%s is there still: %v", space.Path(), err)
		}
	}
}
