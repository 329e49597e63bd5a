package testutil

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/lab/ns"
)

func netnsInode(t *testing.T) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

func TestNetNSIsEnteredLeftAndRemoved(t *testing.T) {
	Privileged(t)
	outside := netnsInode(t)
	var name string
	t.Run("inner", func(t *testing.T) {
		a, b := NetNS(t), NetNS(t)
		name = a.Name()
		var inA, inB, backInA uint64
		a.Do(t, func() {
			inA = netnsInode(t)
			b.Do(t, func() { inB = netnsInode(t) })
			backInA = netnsInode(t)
		})
		if inA == outside || inB == outside || inA == inB {
			t.Errorf("namespaces are not apart: outside %d, a %d, b %d", outside, inA, inB)
		}
		if backInA != inA {
			t.Errorf("after a nested call: in %d, want %d", backInA, inA)
		}
		if got := netnsInode(t); got != outside {
			t.Errorf("after Do: in %d, want %d", got, outside)
		}
	})
	names, err := ns.List()
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(names, name) {
		t.Errorf("%s is left after its test", name)
	}
}

func TestEnterLastsForTheTest(t *testing.T) {
	Privileged(t)
	outside := netnsInode(t)
	t.Run("inner", func(t *testing.T) {
		NetNS(t).Enter(t)
		if netnsInode(t) == outside {
			t.Error("Enter left the test outside")
		}
	})
	if got := netnsInode(t); got != outside {
		t.Errorf("after the entering test: in %d, want %d", got, outside)
	}
}

func TestDoReturnsWhenFnEndsItsGoroutine(t *testing.T) {
	Privileged(t)
	space := NetNS(t)
	outside := netnsInode(t)
	after := make(chan uint64, 1)
	go func() {
		defer func() { after <- netnsInode(t) }()
		space.Do(t, runtime.Goexit) // as t.FailNow does
	}()
	if got := <-after; got != outside {
		t.Errorf("the thread was left in %d, want %d", got, outside)
	}
}

func TestBPFFSHoldsPinsAndIsUnmounted(t *testing.T) {
	Privileged(t)
	var dir string
	t.Run("inner", func(t *testing.T) {
		dir = BPFFS(t)
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		if err := m.Pin(filepath.Join(dir, "m")); err != nil {
			t.Fatal(err)
		}
	})
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("stat %s after the test: %v, want not exist", dir, err)
	}
}

func TestWaitForSeesALateEffect(t *testing.T) {
	calls := 0
	WaitFor(t, time.Second, "the third call", func() bool { calls++; return calls == 3 })
	if calls != 3 {
		t.Errorf("%d calls, want 3", calls)
	}
}
