package attach

import (
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/margay-project/margay/internal/testutil"
)

// room is a network namespace and a directory for pins; the test's goroutine is inside the namespace.
func room(t *testing.T) (ns *testutil.Namespace, dir string) {
	t.Helper()
	testutil.Privileged(t)
	ns = testutil.NetNS(t)
	ns.Enter(t)
	return ns, filepath.Join(testutil.BPFFS(t), "links")
}

// veth makes a veth whose ends are both here and returns the index of the one named.
func veth(t testing.TB, name string) uint32 {
	t.Helper()
	a := netlink.NewLinkAttrs()
	a.Name = name
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: a, PeerName: "peer-" + name}); err != nil {
		t.Fatal(err)
	}
	l, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(l.Attrs().Index)
}

func removeLink(t *testing.T, ifindex uint32) {
	t.Helper()
	l, err := netlink.LinkByIndex(int(ifindex))
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkDel(l); err != nil {
		t.Fatal(err)
	}
}

// program loads one that does nothing but return; each call is another program.
func program(t testing.TB, kind ebpf.ProgramType, result int32) *ebpf.Program {
	t.Helper()
	spec := &ebpf.ProgramSpec{
		Type: kind, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, result), asm.Return()},
	}
	if kind == ebpf.Netfilter {
		spec.AttachType = ebpf.AttachNetfilter
	}
	p, err := ebpf.NewProgram(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func id(t *testing.T, p *ebpf.Program) uint32 {
	t.Helper()
	info, err := p.Info()
	if err != nil {
		t.Fatal(err)
	}
	n, _ := info.ID()
	return uint32(n)
}

func programs(t testing.TB) Programs {
	t.Helper()
	return Programs{
		FromPod: program(t, ebpf.SchedCLS, -1), ToPod: program(t, ebpf.SchedCLS, -1),
		Guard: program(t, ebpf.Netfilter, 1), Judge: program(t, ebpf.Netfilter, 1),
	}
}

func newLinks(t *testing.T, dir string, p Programs, older ...string) *Links {
	t.Helper()
	l, err := NewLinks(dir, older, p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func watchIn(ns *testutil.Namespace) WatchOptions {
	handle := netns.NsHandle(ns.Fd())
	return WatchOptions{NetNS: &handle, Logger: slog.New(slog.DiscardHandler)}
}
