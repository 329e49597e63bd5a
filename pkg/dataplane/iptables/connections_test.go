package iptables

import (
	"net/netip"
	"testing"

	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/further"
	"github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/model"
)

// Tools read from the kernel alone which connections are a local endpoint's, and how policy in force has judged them.
func TestConnectionsAreReadByWhatIsInForce(t *testing.T) {
	n := newFakeNode(t)
	n.mustApply(t, narrow.updates()...)
	n.mustApply(t, wide.updates()...)
	e, err := ReadEnforced(t.Context(), []*iptables.Tools{n.tables.Tools(iptables.Legacy)}, n.sets)
	if err != nil {
		t.Fatal(err)
	}
	var local netip.Addr
	for _, p := range n.state.endpoints.bound {
		local = p.policy.Addrs[0]
	}
	other, marks, now := netip.MustParseAddr("10.0.0.1"), n.state.static.base.Marks, n.state.static.generation.number
	stamp := func(number uint32) uint32 {
		v, err := marks.Generation(number)
		if err != nil {
			t.Fatal(err)
		}
		return v.Value
	}
	const turned, passed = 0x40000000, 0x80000000
	for name, test := range map[string]struct {
		src, dst netip.Addr
		mark     uint32
		want     string
	}{
		"judged":        {other, local, stamp(now), "current"},
		"judged before": {local, other, stamp(now - 1), "stale"},
		"revoked":       {other, local, stamp(now) &^ passed, "current denied"},
		"turned":        {local, other, stamp(now) | turned, "current turned"},
		"not judged":    {other, local, 0, ""},
		"others'":       {other, other, stamp(now), "not ours"},
	} {
		entry := conntrack.Entry{Mark: test.mark, Original: conntrack.Tuple{Src: test.src, Dst: test.dst, Protocol: model.ProtoTCP, SrcPort: 4000, DstPort: 80},
			Reply: conntrack.Tuple{Src: test.dst, Dst: test.src, Protocol: model.ProtoTCP, SrcPort: 80, DstPort: 4000}}
		c, ok := e.Read(entry)
		got := ""
		switch {
		case !ok:
			got = "not ours"
		case c.Current:
			got = "current"
		case c.Judged:
			got = "stale"
		}
		if c.Denied {
			got += " denied"
		}
		if c.Turned {
			got += " turned"
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
		if ok && (c.Opener == entry.Original) == c.Turned {
			t.Errorf("%s: opened by %v", name, c.Opener)
		}
	}
}

// A connection with a further source is that of the endpoint which lists the source and which it is routed to, unless a packet that was
// judged by itself has begun it.
func TestConnectionsOfFurtherSourcesAreRead(t *testing.T) {
	n := newFakeNode(t)
	n.mustApply(t, append(stage{}.updates(), listingAt("gw", "cali1", "10.0.9.1", "203.0.113.0/24", "2001:db8::/32"), listingAt("other", "cali2", "10.0.9.2", "0.0.0.0/0"))...)
	e, err := ReadEnforced(t.Context(), []*iptables.Tools{n.tables.Tools(iptables.Legacy)}, n.sets)
	if err != nil {
		t.Fatal(err)
	}
	route := func(prefix, iface string) further.Route {
		return further.Route{Prefix: netip.MustParsePrefix(prefix), Interface: iface}
	}
	outside, outside6, marks := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("fd00::1"), n.state.static.base.Marks
	current, err := marks.Generation(n.state.static.generation.number)
	if err != nil {
		t.Fatal(err)
	}
	read := func(src, dst netip.Addr, mark uint32) bool {
		tuple := conntrack.Tuple{Src: src, Dst: dst, Protocol: model.ProtoUDP}
		_, ok := e.Read(conntrack.Entry{Mark: mark, Original: tuple, Reply: conntrack.Tuple{Src: dst, Dst: src, Protocol: model.ProtoUDP}})
		return ok
	}
	if read(netip.MustParseAddr("203.0.113.7"), outside, current.Value) {
		t.Error("a connection of a further source is an endpoint's although routes are not known")
	}
	e.Routed = further.New(e.Listed, []further.Route{route("203.0.113.0/25", "cali1"), route("198.51.100.0/24", "cali1"), route("203.0.113.64/26", "cali2"), route("2001:db8:1::/48", "cali1")})
	for addr, want := range map[string]string{"203.0.113.7": "cali1", "203.0.113.65": "cali2", "203.0.113.129": "", "198.51.100.7": "", "2001:db8:1::7": "cali1", "10.0.9.1": "cali1"} {
		a, far := netip.MustParseAddr(addr), outside
		if a.Is6() {
			far = outside6
		}
		if got := e.Interface(a); got != want {
			t.Errorf("%s is that of %q, want %q", addr, got, want)
		}
		if read(a, far, current.Value) != (want != "") || read(far, a, 0) != (want != "") {
			t.Errorf("a connection of %s is not read as that of %q", addr, want)
		}
		if own := e.IsLocal(a); read(a, far, marks.Lone().Value) != own {
			t.Errorf("a connection that a packet of %s judged by itself has begun is an endpoint's: %t, want %t", addr, !own, own)
		}
	}
}
