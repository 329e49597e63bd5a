package match

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/model"
)

// netSet is the set that stands for a CIDR list of a rule's remote side.
type netSet struct {
	id      model.SetID
	nets    []netip.Prefix
	defined bool // it is in Program.NetSets
}

// remote and local return the sides of a rule as seen from the endpoint.
func (x *Expander) remote(r *model.MatchRule) *model.Side {
	if x.direction == model.Ingress {
		return &r.Source
	}
	return &r.Destination
}

func (x *Expander) localSide(r *model.MatchRule) *model.Side {
	if x.direction == model.Ingress {
		return &r.Destination
	}
	return &r.Source
}

// addresses folds what the rule says of addresses and families; not ok if no packet of this endpoint can satisfy it.
func (x *Expander) addresses(r *model.MatchRule) (c clause, ok bool) {
	remote, local := x.remote(r), x.localSide(r)
	for _, own := range x.own {
		if (r.IPVersion == 0 || r.IPVersion == own.version) && servesFamily(remote, own.family) &&
			servesFamily(local, own.family) && x.localMatches(local, own) {
			c.families |= own.flag
		}
	}
	if r.Protocol != nil {
		switch *r.Protocol {
		case model.ProtoICMP:
			c.families &= bpf.RuleV4
		case model.ProtoICMPv6:
			c.families &= bpf.RuleV6
		}
	}
	if c.families == 0 {
		return c, false
	}
	c.in, c.notIn = appendUnique(x.scratch.in[:0], remote.In), appendUnique(x.scratch.notIn[:0], remote.NotIn)
	c.nets = x.scratch.nets[:0]
	if len(remote.Nets) > 0 && !holdsAll(remote.Nets, c.families) {
		n := x.netSet(remote.Nets)
		c.nets = append(c.nets, n)
		c.in = append(c.in, n.id)
	}
	if len(remote.NotNets) > 0 {
		n := x.netSet(remote.NotNets)
		c.nets = append(c.nets, n)
		c.notIn = append(c.notIn, n.id)
	}
	x.scratch.in, x.scratch.notIn, x.scratch.nets = c.in, c.notIn, c.nets
	for _, s := range c.in {
		if slices.Contains(c.notIn, s) {
			return c, false
		}
	}
	return c, true
}

// servesFamily reports whether the CIDR lists of a side let packets of the family match at all: a list must have an
// entry of the family (D-9), and a negated one must not hold every address of it.
func servesFamily(s *model.Side, f family) bool {
	if len(s.Nets) > 0 && !slices.ContainsFunc(s.Nets, f.has) {
		return false
	}
	return len(s.NotNets) == 0 || slices.ContainsFunc(s.NotNets, f.has) && !slices.ContainsFunc(s.NotNets, f.isAll)
}

func (f family) has(p netip.Prefix) bool { return p.Addr().Is4() == (f.version == 4) }

func (f family) isAll(p netip.Prefix) bool { return p.Bits() == 0 && f.has(p) }

// holdsAll reports whether the list holds every address of the families.
func holdsAll(nets []netip.Prefix, families uint8) bool {
	for _, f := range []family{{4, bpf.RuleV4}, {6, bpf.RuleV6}} {
		if families&f.flag != 0 && !slices.ContainsFunc(nets, f.isAll) {
			return false
		}
	}
	return true
}

// localMatches reports whether the endpoint's own address satisfies the local side.
func (x *Expander) localMatches(s *model.Side, own ownAddr) bool {
	holds := func(p netip.Prefix) bool { return p.Contains(own.addr) }
	if len(s.Nets) > 0 && !slices.ContainsFunc(s.Nets, holds) || slices.ContainsFunc(s.NotNets, holds) {
		return false
	}
	for _, id := range s.In {
		if !x.local.In(own.version, id) {
			return false
		}
	}
	return !slices.ContainsFunc(s.NotIn, func(id model.SetID) bool { return x.local.In(own.version, id) })
}

// netSet returns the set of a CIDR list.
func (x *Expander) netSet(list []netip.Prefix) *netSet {
	if len(list) != 1 {
		return newNetSet(list)
	}
	n := x.single[list[0]]
	if n == nil {
		n = newNetSet(list)
		x.single[list[0]] = n
	}
	return n
}

// newNetSet names a CIDR list by its content: prefixes masked, in order, without those inside another.
func newNetSet(list []netip.Prefix) *netSet {
	sorted := make([]netip.Prefix, len(list))
	for i, p := range list {
		sorted[i] = p.Masked()
	}
	slices.SortFunc(sorted, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	nets := sorted[:0]
	for _, p := range sorted {
		if n := len(nets); n > 0 && nets[n-1].Overlaps(p) {
			continue
		}
		nets = append(nets, p)
	}
	return &netSet{id: netSetID(nets), nets: nets}
}

// netSetID is a hash of the text of prefixes. The kernel has it as the set's name, from which an agent that starts goes on.
func netSetID(nets []netip.Prefix) model.SetID {
	const kept = 18 // bytes of the hash
	h := sha256.New()
	text := make([]byte, 0, 64)
	for _, p := range nets {
		text = append(p.AppendTo(text[:0]), ' ')
		h.Write(text)
	}
	sum := h.Sum(text[:0])
	id := append(make([]byte, 0, 64), "net:"...)
	return model.SetID(base64.RawURLEncoding.AppendEncode(id, sum[:kept]))
}

// appendUnique appends those that out does not have yet, in order of first appearance.
func appendUnique(out, sets []model.SetID) []model.SetID {
	for _, s := range sets {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}
