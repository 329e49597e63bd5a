package iptables

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/ruleset"
	"github.com/margay-project/margay/pkg/ruleset/walk"
)

// through walks a packet through built-in chains, each written "table CHAIN".
func (w *walker) through(t *testing.T, p walk.Packet, hooks ...[2]string) walk.Result {
	t.Helper()
	family := iptables.V4
	if p.Src.Is6() {
		family = iptables.V6
	}
	var list []walk.Stage
	for _, hook := range hooks {
		parsed, err := ruleset.Parse(w.fakeNode.tables.Save(family, hook[0]))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, walk.Stage{Table: walk.NewTable(&parsed[0]), Chain: hook[1]})
	}
	p.Others = walk.Others{SrcType: "UNICAST", DstType: "UNICAST", LinkType: "unicast", BPF: func(string) bool { return false }}
	r, err := walk.Walk(list, p, fakeLookup{w.sets})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var (
	forwarded = [][2]string{{"raw", "PREROUTING"}, {"mangle", "PREROUTING"}, {"mangle", "FORWARD"}, {"filter", "FORWARD"}, {"mangle", "POSTROUTING"}}
	leaving   = [2]string{"mangle", "POSTROUTING"}
)

func allowedNode(t *testing.T) *walker {
	t.Helper()
	w := &walker{fakeNode: newFakeNode(t)}
	s := scene{roles: map[string]string{"src": "friend", "far": "friend"}, allow: map[string][]string{"a": {"friend"}, "b": {"friend"}}, far: true}
	w.mustApply(t, s.updates()...)
	return w
}

// Packets between interfaces that are no pod's pass as they are, also those that no flow of a pod may begin with.
func TestPacketsOfOthersPassAsTheyAre(t *testing.T) {
	w := allowedNode(t)
	ends := map[bool][2]netip.Addr{false: {netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("203.0.113.1")},
		true: {netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8:1::1")}}
	for v6, at := range ends {
		icmp := map[bool]uint8{false: 1, true: 58}[v6]
		for name, p := range map[string]walk.Packet{
			"invalid":          {Protocol: 6, TCP: walk.ACK},
			"untracked":        {Protocol: 6, TCP: walk.ACK, Untracked: true},
			"no flags":         {Protocol: 6, Connection: &walk.Connection{Protocol: 6}},
			"mid-flow":         {Protocol: 6, TCP: walk.ACK, Connection: &walk.Connection{Protocol: 6}},
			"an answer":        {Protocol: 17, Connection: &walk.Connection{Protocol: 17, State: walk.Established, Reply: true}},
			"an error":         {Protocol: icmp, ICMP: walk.ICMP{Type: 3}, Connection: &walk.Connection{Protocol: 6, State: walk.Related}},
			"of a tunnel":      {Protocol: 4, Connection: &walk.Connection{Protocol: 4}},
			"others' marks":    {Protocol: 6, TCP: walk.SYN, Mark: 0x4000, Connection: &walk.Connection{Protocol: 6, Mark: 0x80}},
			"a routing header": {Protocol: 6, TCP: walk.SYN, Routing: &walk.Routing{SegmentsLeft: 1}, Connection: &walk.Connection{Protocol: 6}},
		} {
			if p.Routing != nil && !v6 {
				continue
			}
			var connmark uint32
			if p.Connection != nil {
				connmark = p.Connection.Mark
			}
			p.In, p.Out, p.Src, p.Dst = "eth1", "eth2", at[0], at[1]
			if r := w.through(t, p, forwarded...); r.Verdict != walk.Accept || r.Mark != p.Mark || r.ConnMark != connmark {
				t.Errorf("IPv6 %v, %s: %v, mark %#x, connection mark %#x, by %v", v6, name, r.Verdict, r.Mark, r.ConnMark, r.Path)
			}
		}
	}
}

// A packet of the node to a Service reaches the interface of the pod behind it only if the pod has the address. Packets of flows that policy
// has allowed were compared in FORWARD, and meet no rule once more.
func TestPacketsToAServiceReachOwnersOnly(t *testing.T) {
	w := allowedNode(t)
	stamp, err := w.state.static.base.Marks.Generation(w.state.static.generation.number)
	if err != nil {
		t.Fatal(err)
	}
	const turned = 0x40000000
	for _, test := range []struct {
		name string
		to   string // whose address
		dnat bool
		mark uint32
		want walk.Verdict
		free bool // no rule matches
	}{
		{"to the owner", "a", true, 0, walk.Accept, false},
		{"to another address", "b", true, 0, walk.Drop, false},
		{"to another address, mid-flow", "b", true, turned, walk.Drop, false},
		{"to another address, mid-flow that was answered", "b", true, stamp.Value | turned, walk.Drop, false},
		{"untranslated, judged in OUTPUT", "b", false, 0, walk.Accept, false},
		{"of an allowed flow", "a", true, stamp.Value, walk.Accept, true},
	} {
		p := walk.Packet{Out: places["a"].iface, Src: netip.MustParseAddr("10.0.0.254"), Dst: netip.MustParseAddr(places[test.to].addr), Protocol: 6, TCP: walk.ACK,
			Connection: &walk.Connection{Protocol: 6, State: walk.Established, DNAT: test.dnat, Mark: test.mark}}
		if r := w.through(t, p, leaving); r.Verdict != test.want || test.free && slices.ContainsFunc(r.Path, func(s walk.Step) bool { return s.Index >= 0 }) {
			t.Errorf("%s: %v by %v, want %v", test.name, r.Verdict, r.Path, test.want)
		}
	}
}

// A packet of a flow that policy has come to deny is reset by filter, and dropped behind it where filter was flushed.
func TestAPacketThatIsNotResetIsDropped(t *testing.T) {
	w := allowedNode(t)
	now := w.state.static.generation.number
	stamp, err := w.state.static.base.Marks.Generation(now)
	if err != nil {
		t.Fatal(err)
	}
	p := walk.Packet{In: places["src"].iface, Out: places["a"].iface, Src: netip.MustParseAddr(places["src"].addr), Dst: netip.MustParseAddr(places["a"].addr), Protocol: 6, TCP: walk.ACK,
		Connection: &walk.Connection{Protocol: 6, State: walk.Established, Mark: stamp.Value &^ 0x80000000}}
	if g, _, denied := w.state.static.base.Marks.GenerationOf(p.Connection.Mark); g != now || !denied {
		t.Fatalf("generation %d, denied %v", g, denied)
	}
	if r := w.through(t, p, forwarded...); r.Verdict != walk.Reject || r.Answer != "tcp-reset" {
		t.Errorf("%v by %v, want a reset", r.Verdict, r.Path)
	}
	withoutFilter := slices.DeleteFunc(slices.Clone(forwarded), func(hook [2]string) bool { return hook[0] == "filter" })
	if r := w.through(t, p, withoutFilter...); r.Verdict != walk.Drop {
		t.Errorf("without filter: %v by %v, want a drop", r.Verdict, r.Path)
	}
	p.Connection.Mark = stamp.Value
	if r := w.through(t, p, forwarded...); r.Verdict != walk.Accept {
		t.Errorf("of an allowed flow: %v by %v", r.Verdict, r.Path)
	}
}
