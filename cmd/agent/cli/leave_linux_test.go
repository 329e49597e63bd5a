package cli

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A start that fails leaves nothing of its own, and everything of an agent that was there before.
func TestARunThatFailsLeavesNothing(t *testing.T) {
	n := newNode(t)
	fail := func(flags ...string) {
		t.Helper()
		n.launch(append([]string{"--dir", filepath.Join(n.dir, "missing")}, flags...)...)
		if err := n.agent.Wait(); err == nil || !strings.Contains(n.logged(), "read the directory of manifests "+filepath.Join(n.dir, "missing")+": no such file or directory") {
			t.Errorf("run without its directory ended with %v", err)
		}
		n.agent = nil
	}
	fresh := filepath.Join(t.TempDir(), "bpf")
	t.Cleanup(func() { unix.Unmount(fresh, unix.MNT_DETACH) }) // of a run that has left it
	fail("--bpffs", fresh, "--socket", "", "--instance", "fails")
	for _, path := range []string{fresh, "/run/margay-fails"} {
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
	fail()
	if left, err := filepath.Glob(filepath.Join(n.bpffs, "margay*")); err != nil || len(left) > 0 {
		t.Errorf("left in the BPF file system that was there: %v, %v", left, err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(n.bpffs, &st); err != nil || uint32(st.Type) != unix.BPF_FS_MAGIC {
		t.Errorf("%s was mounted before, and is not any more", n.bpffs)
	}

	n.start()
	n.stop(syscall.SIGTERM)
	fail()
	n.wantReach(80, true)
	n.wantReach(81, false)
	n.want(0, []string{n.db.Iface(), "policy"}, "show", "drops")
}
