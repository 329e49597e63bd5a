package attach

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testutil"
)

// What the watch costs on a node with 250 pods of two addresses and 100,000 routes of a router beside them: all of them
// read again, and one change.
func BenchmarkRoutesBesideManyOthers(b *testing.B) {
	testutil.Privileged(b)
	ns := testutil.NetNS(b)
	ns.Enter(b)
	up := func(name string) uint32 {
		index := veth(b, name)
		l, err := netlink.LinkByIndex(int(index))
		if err == nil {
			err = netlink.LinkSetUp(l)
		}
		if err != nil {
			b.Fatal(err)
		}
		return index
	}
	up("ethother")
	var pods, others strings.Builder
	for i := range 250 {
		name := fmt.Sprintf("cali%d", i)
		up(name)
		fmt.Fprintf(&pods, "route add 10.0.0.%d/32 dev %s\nroute add fd00::%x/128 dev %[2]s\n", i, name, i+1)
	}
	for i := range 100_000 {
		fmt.Fprintf(&others, "route add 172.%d.%d.%d/30 dev ethother\n", 16+i>>14, i>>6&255, i&63<<2)
	}
	batch := func(text string) {
		cmd := exec.Command("ip", "-batch", "-")
		cmd.Stdin = strings.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
	}
	batch(pods.String())
	batch(others.String())
	w := newRouteWatch(watchIn(ns), "cali")
	if err := w.open(); err != nil {
		b.Fatal(err)
	}
	defer w.kernel.close()
	defer w.sub.close()
	if got := len(w.delivered()); got != 500 {
		b.Fatalf("%d addresses are delivered, want 500", got)
	}
	b.Run("read all", func(b *testing.B) {
		for b.Loop() {
			if err := w.reread(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("one changes", func(b *testing.B) {
		changed := changes{addrs: map[netip.Addr]bool{netip.MustParseAddr("10.0.0.7"): true}}
		for b.Loop() {
			if err := w.carryOut(changed); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("a router's route changes", func(b *testing.B) {
		notice := make([]byte, unix.SizeofRtMsg+16)
		notice[0], notice[1] = unix.AF_INET, 32
		copy(notice[unix.SizeofRtMsg:], []byte{8, 0, unix.RTA_DST, 0, 172, 16, 0, 1, 8, 0, unix.RTA_OIF, 0, 2, 0, 0, 0})
		var c changes
		for b.Loop() {
			w.decode(unix.RTM_NEWROUTE, unix.NlMsghdr{}, notice, &c)
		}
	})
}
