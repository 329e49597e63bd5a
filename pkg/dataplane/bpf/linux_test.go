package bpf

import (
	"bytes"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/dataplane"
)

// TestAnInterfaceMadeAnewUnderTheSameNameAndNumberIsTouched: nothing else would tell that what was attached is gone.
func TestAnInterfaceMadeAnewUnderTheSameNameAndNumberIsTouched(t *testing.T) {
	testutil.Privileged(t)
	testutil.NetNS(t).Enter(t)
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "cali1", Index: 77}, PeerName: "peer1"}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	host, err := OpenLinux("cali", slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := host.Close(); err != nil {
			t.Error(err)
		}
	}()
	touched := func() bool { return slices.Contains(host.Touched(), 77) && host.Interfaces()["cali1"] == 77 }
	testutil.WaitFor(t, time.Minute, "the interface is seen", touched)
	if touched() {
		t.Error("touched twice, although nothing has happened")
	}
	if err := netlink.LinkDel(veth); err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	testutil.WaitFor(t, time.Minute, "the new interface is seen", touched)
	if err := netlink.LinkDel(veth); err != nil {
		t.Fatal(err)
	}
	testutil.WaitFor(t, time.Minute, "that it is gone is seen", func() bool { return len(host.Interfaces()) == 0 })
}

// TestProgramsOfOthersBeforeOursAreReportedOnce: a program of somebody else that accepts packets before to_pod leaves ingress unenforced.
// The look every 90 s ensures all programs, and so does this.
func TestProgramsOfOthersBeforeOursAreReportedOnce(t *testing.T) {
	testutil.Privileged(t)
	testutil.NetNS(t).Enter(t)
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "cali1", Index: 77}, PeerName: "peer1"}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	host, err := OpenLinux("cali", slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	c := dataplane.Defaults()
	c.BPFFS = testutil.BPFFS(t)
	dp, err := OpenBPF(c, host, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, dp)
	ensure := func(warnings int) {
		t.Helper()
		if err := host.Ensure("cali1", 77); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(log.String(), "level=WARN"); n != warnings {
			t.Errorf("%d warnings, want %d:\n%s", n, warnings, log.String())
		}
	}
	ensure(0)
	ensure(0)
	pass, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "other_agent", Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.LoadImm(asm.R0, 0, asm.DWord), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	defer pass.Close()
	other, err := link.AttachTCX(link.TCXOptions{Interface: 77, Program: pass, Attach: ebpf.AttachTCXEgress, Anchor: link.Head()})
	if err != nil {
		t.Fatal(err)
	}
	ensure(1)
	ensure(1)
	if !strings.Contains(log.String(), "iface=cali1 beforeFromPod=0 beforeToPod=1") {
		t.Errorf("log:\n%s", log.String())
	}
	if faults := host.Faults(77); len(faults) != 1 || !strings.Contains(faults[0], `tcx/egress: programs of others run before ours ("other_agent", id `) {
		t.Errorf("faults: %q", faults)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	ensure(1)
	if n := strings.Count(log.String(), "on a workload interface any more\" iface=cali1"); n != 1 {
		t.Errorf("%d lines say that it is over, want 1:\n%s", n, log.String())
	}
	if faults := host.Faults(77); len(faults) != 0 {
		t.Errorf("faults once it has gone: %q", faults)
	}
}
