package calc

import (
	"net/netip"
	"slices"
)

// A network set that there is no room for fails closed: a rule that allows by it does not match, and one that denies by it matches a few wide
// prefixes that cover it (withPast). All such prefixes together are few, whatever tenants write: they are no longer than these.
const (
	coarse4 = 8
	coarse6 = 12
	// mostCovering is how many cover one network set in each family. With more, a single one does: as many selectors may find the set
	// as there can be.
	mostCovering = 4
)

// coarse returns prefixes that cover those of a network set, coarsely; of the prefixes that it returned, the same.
// They are in no order, and none is within another.
func coarse(nets []netip.Prefix) []netip.Prefix {
	var v4, v6 cover
	for p := range masked(nets) {
		if p.Addr().Is4() {
			v4.add(p, coarse4)
		} else {
			v6.add(p, coarse6)
		}
	}
	return append(v4.of, v6.of...)
}

// cover collects what covers the prefixes of one family.
type cover struct{ of []netip.Prefix }

func (c *cover) add(p netip.Prefix, longest int) {
	p, _ = p.Addr().Prefix(min(p.Bits(), longest))
	for _, other := range c.of {
		if other.Bits() <= p.Bits() && other.Contains(p.Addr()) {
			return
		}
	}
	c.of = append(slices.DeleteFunc(c.of, func(other netip.Prefix) bool { return p.Contains(other.Addr()) }), p)
	if len(c.of) <= mostCovering {
		return
	}
	for _, other := range c.of {
		p, _ = p.Addr().Prefix(min(p.Bits(), other.Bits()))
		for !p.Contains(other.Addr()) {
			p, _ = p.Addr().Prefix(p.Bits() - 1)
		}
	}
	c.of = append(c.of[:0], p)
}
