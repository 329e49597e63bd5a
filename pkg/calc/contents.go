package calc

import (
	"container/list"
	"iter"
	"net/netip"
	"slices"
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
	nets   netList        // of a network set
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

// iface is that of an endpoint of this node; empty: the item is none.
func (it *contents) iface() string {
	if it.extra == nil {
		return ""
	}
	return it.extra.iface
}

// nets is how many prefixes an item has, if it is a network set.
func (it *contents) nets() int {
	if it.extra == nil {
		return 0
	}
	return it.extra.nets.len()
}

// isOut reports whether an item is a network set that is past the limit of its namespace.
func (it *contents) isOut() bool { return it.extra != nil && it.extra.out }

// covering are the prefixes that cover a network set.
func (it *contents) covering() []netip.Prefix {
	if it.extra.cover == nil {
		it.extra.cover = coarse(it.extra.nets.list())
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
			masked(it.extra.nets.list())(yield)
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

// netList are the prefixes of a network set. While one changes in parts, those that have joined and those that are left from before are
// parts of two lists, and none is copied. It is read-only.
type netList struct{ joined, rest []netip.Prefix }

func (l netList) len() int { return len(l.joined) + len(l.rest) }

// first returns a prefix of a list that has some.
func (l netList) first() netip.Prefix {
	if len(l.joined) > 0 {
		return l.joined[0]
	}
	return l.rest[0]
}

// list returns all prefixes, in memory of the list if they are in one piece.
func (l netList) list() []netip.Prefix {
	switch {
	case len(l.rest) == 0:
		return l.joined
	case len(l.joined) == 0:
		return l.rest
	}
	return slices.Concat(l.joined, l.rest)
}

// differ returns prefixes that go and that come if now replaces l; some may do both. Of lists in the same memory, as parts of one change
// are, it compares none. Else it returns what is between the first and the last difference.
func (l netList) differ(now netList) (out, in []netip.Prefix) {
	if len(l.rest) == 0 && len(now.rest) > 0 {
		l = netList{rest: l.joined}
	}
	if beginWithin(l.joined, now.joined) && endWithin(now.rest, l.rest) {
		return l.rest[:len(l.rest)-len(now.rest)], now.joined[len(l.joined):]
	}
	out, in = l.list(), now.list()
	for len(out) > 0 && len(in) > 0 && out[0] == in[0] {
		out, in = out[1:], in[1:]
	}
	for len(out) > 0 && len(in) > 0 && out[len(out)-1] == in[len(in)-1] {
		out, in = out[:len(out)-1], in[:len(in)-1]
	}
	return out, in
}

// beginWithin reports whether a is the beginning of b, in the same memory.
func beginWithin(a, b []netip.Prefix) bool {
	return len(a) == 0 || len(a) <= len(b) && &a[0] == &b[0]
}

// endWithin reports whether a is the end of b, in the same memory.
func endWithin(a, b []netip.Prefix) bool {
	return len(a) == 0 || len(a) <= len(b) && &a[len(a)-1] == &b[len(b)-1]
}
