package calc

import (
	"net/netip"
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/pkg/model"
)

// Whatever two lists are, and whether they share memory or not, differ leads from one to the other.
func TestListsOfPrefixesDifferByWhatDifferSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		was, now := drawNets(t, 8), drawNets(t, 8)
		part := func(what string) netList {
			before, after := was, now
			if rapid.IntRange(0, 3).Draw(t, what+" in memory of its own") == 0 {
				before, after = slices.Clone(was), slices.Clone(now)
			}
			return netList{
				joined: after[:rapid.IntRange(0, len(after)).Draw(t, what+" joined")],
				rest:   before[rapid.IntRange(0, len(before)).Draw(t, what+" left"):],
			}
		}
		a, b := part("first"), part("second")
		if rapid.Bool().Draw(t, "of one piece") {
			a = netList{joined: slices.Clone(a.list())}
		}
		out, in := a.differ(b)
		counts := map[netip.Prefix]int{}
		for _, list := range []struct {
			nets []netip.Prefix
			by   int
		}{{a.list(), 1}, {out, -1}, {in, 1}, {b.list(), -1}} {
			for _, p := range list.nets {
				counts[p] += list.by
			}
		}
		for p, n := range counts {
			if n != 0 {
				t.Errorf("%v: %d too many after %v go and %v come; from %v to %v", p, n, out, in, a, b)
			}
		}
	})
}

// A part of a change costs what changes in it, not what the network set has: its lists are neither copied nor compared.
func TestAPartOfALargeNetworkSetCopiesNoList(t *testing.T) {
	const prefixes, most = 1 << 16, 64
	listBytes := prefixes * 24
	g := newGraph(thisNode)
	g.InParts(most)
	set := func(last int) model.NetworkSetUpdate {
		u := model.NetworkSetUpdate{ID: model.NetworkSetID{Namespace: "shop", Name: "large"}, Set: &model.NetworkSet{Labels: map[string]string{"a": "1"}}}
		for i := range prefixes {
			u.Set.Nets = append(u.Set.Nets, netip.PrefixFrom(netip.AddrFrom4([4]byte{11, byte(i >> 15), byte(i >> 7), byte(i<<1 + last)}), 32))
		}
		return u
	}
	from := []model.Rule{{Action: model.Allow, Source: model.Entity{Selector: sel("a == '1'")}}}
	g.Apply([]model.Update{pod("shop/a", "10.9.0.2"), set(0), model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "p"},
		Policy: &model.Policy{Tier: model.TierDefault, Selector: sel("all()"), AppliesIngress: true, Ingress: from}}, model.InSync{}})
	g.Flush()
	g.Apply([]model.Update{set(1)})
	const parts = 100
	g.Flush() // compares the lists once
	g.Flush()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range parts {
		if len(g.Turning()) == 0 {
			t.Fatal("the change is at its end")
		}
		g.Flush()
	}
	runtime.ReadMemStats(&after)
	if each := int(after.TotalAlloc-before.TotalAlloc) / parts; each > listBytes/8 {
		t.Errorf("a part of %d prefixes allocates %d bytes, and the list of all is %d", most, each, listBytes)
	}
}
