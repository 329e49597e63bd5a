package calc

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"
	"sort"

	"github.com/margay-project/margay/pkg/model"
)

// ownedAddrs is what model.SetOwnedAddrs covers: the prefixes that endpoints of this node list as further sources. Without
// any, which is usual, no address is looked at.
type ownedAddrs struct {
	within []netip.Prefix // ascending, none inside of another
}

func (o ownedAddrs) isEmpty() bool { return len(o.within) == 0 }

func (o ownedAddrs) covers(a netip.Addr) bool {
	i := sort.Search(len(o.within), func(i int) bool { return a.Less(o.within[i].Addr()) })
	return i > 0 && o.within[i-1].Contains(a)
}

// newOwnedAddrs covers the prefixes of all lists.
func newOwnedAddrs(lists map[model.EndpointID][]netip.Prefix) ownedAddrs {
	var all, outer []netip.Prefix
	for _, list := range lists {
		all = append(all, list...)
	}
	slices.SortFunc(all, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	for _, p := range all {
		if n := len(outer); n == 0 || !outer[n-1].Contains(p.Addr()) {
			outer = append(outer, p)
		}
	}
	return ownedAddrs{outer}
}

// coverSources has model.SetOwnedAddrs follow the further sources of local endpoints. It looks at every address of the cluster
// if what they cover has changed.
func (g *Graph) coverSources() {
	if !g.local.resourced {
		return
	}
	g.local.resourced = false
	now := newOwnedAddrs(g.local.sources)
	if slices.Equal(now.within, g.sets.owned.within) {
		return
	}
	g.sets.owned.cover(g.sets, now, func(yield func(netip.Addr) bool) {
		for ep := range g.endpoints.All() {
			for a := range ep.Value.spokenFor() {
				if !yield(a) {
					return
				}
			}
		}
		for p := range g.owners.reserved.all() {
			if !yield(p.Addr()) {
				return
			}
		}
	})
}

// cover replaces what the set covers. everyone yields each address once for each that contributes it.
func (o *ownedAddrs) cover(x *setIndex, now ownedAddrs, everyone iter.Seq[netip.Addr]) {
	was := *o
	*o = now
	set := x.byID[model.SetOwnedAddrs]
	switch {
	case now.isEmpty():
		x.drop(set)
		return
	case set == nil:
		set = x.newSet(model.SetOwnedAddrs)
	}
	for a := range everyone {
		p, ok := hostPrefix(a)
		switch before, after := was.covers(a), now.covers(a); {
		case !ok || before == after:
		case after:
			x.count(set, p, 1)
		default:
			x.count(set, p, -1)
		}
	}
}

// count counts an address that is owned into or out of the set, if it is covered.
func (o *ownedAddrs) count(x *setIndex, a netip.Addr, delta int32) {
	if p, ok := hostPrefix(a); ok && o.covers(a) {
		x.count(x.byID[model.SetOwnedAddrs], p, delta)
	}
}

// spokenFor are the addresses of an endpoint from which no other may send: those that it owns, and those that the kubelet
// reports of it although the claim lost.
func (it *contents) spokenFor() iter.Seq[netip.Addr] {
	if x := it.extra; x != nil && x.particular && !x.unconfirmed {
		return slices.Values(x.claims)
	}
	return it.addrs()
}
