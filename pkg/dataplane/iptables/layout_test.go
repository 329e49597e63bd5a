package iptables

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/ruleset/walk"
)

// An agent of the former layout of connection marks wrote the generation alone for connections that policy allows, which is "denied" in the
// present one. Its successor resets none of these connections, and tools read no verdict from its marks.
func TestMarksOfTheFormerLayoutDenyNothing(t *testing.T) {
	w := allowedNode(t)
	const passed = 0x80000000
	stamp, err := w.state.static.base.Marks.Generation(w.state.static.generation.number)
	if err != nil {
		t.Fatal(err)
	}
	former := stamp.Value &^ passed
	for _, family := range []iptables.Family{iptables.V4, iptables.V6} {
		chain := w.state.world.names[uint8(family)].Chain("allow")
		text := fmt.Sprintf("*mangle\n:%[1]s - [0:0]\n-A %[1]s -j CONNMARK --set-xmark %#[2]x/%#[3]x\nCOMMIT\n", chain, former, stamp.Mask)
		if err := w.fakeNode.tables.Load(family, text); err != nil {
			t.Fatal(err)
		}
	}
	src, dst := netip.MustParseAddr(places["src"].addr), netip.MustParseAddr(places["a"].addr)
	e, err := ReadEnforced(t.Context(), []*iptables.Tools{w.fakeNode.tables.Tools(iptables.Legacy)}, w.sets)
	if err != nil {
		t.Fatal(err)
	}
	for _, mark := range []uint32{former, former | passed} {
		c, ok := e.Read(conntrack.Entry{Mark: mark, Original: conntrack.Tuple{Src: src, Dst: dst, Protocol: 6}, Reply: conntrack.Tuple{Src: dst, Dst: src, Protocol: 6}})
		if !ok || c.Judged || c.Denied {
			t.Errorf("mark %#x is read as %+v (of a local endpoint: %v), want no verdict", mark, c, ok)
		}
	}
	w.flows.marks = []uint32{former, former | passed}
	w.open(t)
	s := scene{roles: map[string]string{"src": "friend", "far": "friend"}, allow: map[string][]string{"a": {"friend"}, "b": {"friend"}}, far: true}
	w.mustApply(t, s.updates()...)
	for _, mark := range w.flows.marks {
		if mark != 0 {
			t.Errorf("a connection still has the mark %#x of the former agent", mark)
		}
	}
	// The former agent's chains may have written the mark once more before they were removed.
	p := walk.Packet{In: places["src"].iface, Out: places["a"].iface, Src: src, Dst: dst, Protocol: 6, TCP: walk.ACK,
		Connection: &walk.Connection{Protocol: 6, State: walk.Established, Mark: former}}
	if r := w.through(t, p, forwarded...); r.Verdict != walk.Accept {
		t.Errorf("a packet of a connection that the former agent has allowed: %v by %v", r.Verdict, r.Path)
	}
}
