package testutil

import (
	"fmt"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/lab/ns"
)

// Namespace is a network namespace that lives as long as its test. Its loopback interface is down, as the kernel makes it.
type Namespace struct{ space *ns.NS }

// NetNS makes a network namespace named mgy-<unique> and removes it when the test ends. Call Privileged first.
func NetNS(t testing.TB) *Namespace {
	t.Helper()
	space, err := ns.Create(ns.Prefix + ns.NewID())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := space.Close(); err != nil {
			t.Error(err)
		}
	})
	return &Namespace{space}
}

// Name is the namespace's name, as ip netns shows it.
func (n *Namespace) Name() string { return n.space.Name() }

// Fd is its descriptor, valid until the test ends; for netlink.NewHandleAt and the like.
func (n *Namespace) Fd() int { return n.space.Fd() }

// Do runs fn inside the namespace on the test's own goroutine, so fn may call t.Fatal, and returns to the namespace the
// test was in. Goroutines that fn starts do not run inside; sockets, BPF links and processes made by fn do.
func (n *Namespace) Do(t testing.TB, fn func()) {
	t.Helper()
	if err := n.space.Do(func() error { fn(); return nil }); err != nil {
		t.Fatal(err)
	}
}

// Enter keeps the test's goroutine inside the namespace until the test ends. Subtests run on goroutines of their own
// and have to enter by themselves.
func (n *Namespace) Enter(t testing.TB) {
	t.Helper()
	leave, err := n.space.Enter()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := leave(); err != nil {
			t.Error(err)
		}
	})
}

// OwnTablesLock gives the process, and the commands that it runs, a lock of iptables-legacy of the test's own. Tests of other packages
// hold that of the machine, for as long as they load large tables.
func OwnTablesLock(t testing.TB) {
	t.Helper()
	t.Setenv("XTABLES_LOCKFILE", filepath.Join(t.TempDir(), "xtables.lock"))
}

// BPFFS mounts a BPF file system of the test's own and returns its path; it is unmounted, and what is pinned in it let
// go, when the test ends. Call Privileged first.
func BPFFS(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("bpf", dir, "bpf", 0, ""); err != nil {
		t.Fatal(fmt.Errorf("mount a BPF file system on %s: %w", dir, err))
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}
