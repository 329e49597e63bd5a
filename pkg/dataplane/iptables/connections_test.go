package iptables

import (
	"net/netip"
	"testing"

	"github.com/margay-project/margay/pkg/conntrack"
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
