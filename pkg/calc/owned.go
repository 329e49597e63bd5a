package calc

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"
	"sort"

	"github.com/margay-project/margay/pkg/model"
)

// ownedAddrs is what model.SetOwnedAddrs covers: at least the prefixes that endpoints of this node list as further sources. Without
// any, which is usual, no address is looked at.
//
// A change of what is covered looks at every address of the cluster, and a tenant may change its list all the time. So more is
// covered at once, and less only after the lists have been the same for a while; meanwhile what is covered grows in few steps.
// An address that is covered and not listed makes no difference to a packet.
type ownedAddrs struct {
	within   []netip.Prefix // ascending, none inside of another
	listed   []netip.Prefix // that must be covered
	quiet    int            // flushes since the lists have changed
	patience int            // flushes without a change after which no more is covered than must be
	sets     *setTable
	set      *set // model.SetOwnedAddrs; nil: nothing is covered
}

const (
	// ownedPatience: what the changes of one tenant cost is nothing beside so many flushes.
	ownedPatience = 1024
	// mostKept prefixes are covered beside those that must be. With more everything is.
	mostKept = 64
)

func (o *ownedAddrs) isEmpty() bool { return len(o.within) == 0 }

func (o *ownedAddrs) covers(a netip.Addr) bool {
	i := sort.Search(len(o.within), func(i int) bool { return a.Less(o.within[i].Addr()) })
	return i > 0 && o.within[i-1].Contains(a)
}

// outermost are the prefixes of all lists that are not inside of another one, ascending.
func outermost(lists iter.Seq[[]netip.Prefix]) []netip.Prefix {
	var all, outer []netip.Prefix
	for list := range lists {
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
	return outer
}

var everything = []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}

// wanted is what is to be covered from this flush on.
func (o *ownedAddrs) wanted() []netip.Prefix {
	if o.quiet >= o.patience {
		return o.listed
	}
	both := outermost(slices.Values([][]netip.Prefix{o.within, o.listed}))
	if len(both) > mostKept+len(o.listed) {
		return everything
	}
	return both
}

// follow notes the prefixes that must be covered, if they have changed since the last flush, and returns what is to be covered
// from this flush on. Not ok: as before.
func (o *ownedAddrs) follow(changed bool, lists iter.Seq[[]netip.Prefix]) (now []netip.Prefix, ok bool) {
	switch {
	case changed:
		o.listed, o.quiet = outermost(lists), 0
	case o.quiet < o.patience:
		o.quiet++
	default:
		return nil, false
	}
	now = o.wanted()
	return now, !slices.Equal(now, o.within)
}

// cover replaces what the set covers. everyone yields each address once for each that contributes it.
func (o *ownedAddrs) cover(now []netip.Prefix, everyone iter.Seq[netip.Addr]) {
	was := *o
	o.within = now
	switch {
	case o.isEmpty():
		o.sets.drop(o.set)
		o.set = nil
		return
	case o.set == nil:
		o.set = o.sets.newSet(model.SetOwnedAddrs)
	}
	for a := range everyone {
		p, ok := hostPrefix(a)
		switch before, after := was.covers(a), o.covers(a); {
		case !ok || before == after:
		case after:
			o.sets.count(o.set, p, 1)
		default:
			o.sets.count(o.set, p, -1)
		}
	}
}

// count counts an address that is owned into or out of the set, if it is covered.
func (o *ownedAddrs) count(a netip.Addr, delta int32) {
	if p, ok := hostPrefix(a); ok && o.covers(a) {
		o.sets.count(o.set, p, delta)
	}
}

// countItem counts the addresses of an item in (or out).
func (o *ownedAddrs) countItem(it *item, delta int32) {
	if o.isEmpty() {
		return
	}
	for a := range it.Value.spokenFor() {
		o.count(a, delta)
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
