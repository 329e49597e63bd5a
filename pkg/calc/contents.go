package calc

import (
	"container/list"
	"iter"
	"net/netip"
)

// contents is what an item of the cluster contributes to sets: an endpoint or a network set. It is replaced, never changed,
// when its object changes. There may be very many, so fields that most of them lack are in extra.
type contents struct {
	extra *extra
	addrList
}

// extra has the fields that few items have.
type extra struct {
	addrs  []netip.Addr   // of an endpoint with other than one address, or one of each family
	nets   []netip.Prefix // of a network set
	cover  []netip.Prefix // what it counts as where it is left out; made when it is needed
	iface  string         // of an endpoint of this node, as
	source []netip.Prefix // its further sources are
	claims []netip.Addr   // of a particular endpoint: all addresses it claims; addrList has those it owns

	held *held         // of a network set
	left *list.Element // of one that is left out of a set, see netsFound

	out         bool // a network set that is past the limit of its namespace
	particular  bool // an endpoint that is one of the following, or may not own all addresses it claims
	terminating bool
	unconfirmed bool
}

// more returns the item's extra, which it makes if there is none.
func (it *contents) more() *extra {
	if it.extra == nil {
		it.extra = &extra{}
	}
	return it.extra
}

// nets is how many prefixes an item has, if it is a network set.
func (it *contents) nets() int {
	if it.extra == nil {
		return 0
	}
	return len(it.extra.nets)
}

// isOut reports whether an item is a network set that is past the limit of its namespace.
func (it *contents) isOut() bool { return it.extra != nil && it.extra.out }

// covering are the prefixes that cover a network set.
func (it *contents) covering() []netip.Prefix {
	if it.extra.cover == nil {
		it.extra.cover = coarse(it.extra.nets)
	}
	return it.extra.cover
}

// prefixes are the addresses the item contributes to the sets it is in.
func (it *contents) prefixes() iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) {
		for a := range it.addrs() {
			if p, ok := hostPrefix(a); ok && !yield(p) {
				return
			}
		}
		if it.extra != nil {
			masked(it.extra.nets)(yield)
		}
	}
}

// masked yields the prefixes that are valid, as members of sets.
func masked(nets []netip.Prefix) iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) {
		for _, n := range nets {
			if n.IsValid() && !yield(n.Masked()) {
				return
			}
		}
	}
}
