package compile

import (
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// world is what the naive evaluator and the fakes know: the members of sets and the endpoint's own addresses.
type world struct {
	sets map[model.SetID][]netip.Prefix
	own  []netip.Addr
}

func (w *world) has(set model.SetID, addr netip.Addr) bool {
	return slices.ContainsFunc(w.sets[set], func(p netip.Prefix) bool { return p.Contains(addr) })
}

// Addr and In make a world the Local of its endpoint.
func (w *world) Addr(family uint8) (netip.Addr, bool) {
	i := slices.IndexFunc(w.own, func(a netip.Addr) bool { return a.Is4() == (family == 4) })
	if i < 0 {
		return netip.Addr{}, false
	}
	return w.own[i], true
}

func (w *world) In(family uint8, set model.SetID) bool {
	addr, ok := w.Addr(family)
	return ok && w.has(set, addr)
}

// verdict evaluates a policy straight from its definition, address by address.
func (w *world) verdict(p *model.DirectionPolicy, pkt model.Packet) model.Verdict {
	var v model.Verdict
	// run reports what the first terminal rule says; 0 if none does.
	run := func(tier string, pol *model.PolicyRules) model.Action {
		for i := range pol.Rules {
			r := &pol.Rules[i]
			if !w.matches(r, pkt) {
				continue
			}
			id := model.RuleID{Point: model.AtRule, Direction: p.Direction, Tier: tier, Policy: pol.Key, Index: r.Index}
			switch r.Action {
			case model.Log:
				v.Logged = append(v.Logged, id)
				continue
			case model.Pass:
				v.Passed = append(v.Passed, id)
			default:
				v.Allow, v.By = r.Action == model.Allow, id
			}
			return r.Action
		}
		return 0
	}
	for _, t := range p.Tiers {
		enforced := slices.DeleteFunc(slices.Clone(t.Policies), func(p *model.PolicyRules) bool { return p.Staged })
		if len(enforced) == 0 {
			continue
		}
		var action model.Action
		for _, pol := range enforced {
			if action = run(t.Name, pol); action != 0 {
				break
			}
		}
		if action == model.Allow || action == model.Deny {
			return v
		}
		if action == 0 {
			end := model.RuleID{Point: model.AtEndOfTier, Direction: p.Direction, Tier: t.Name, Policy: enforced[0].Key}
			if t.Default != model.Pass {
				v.By = end
				return v
			}
			v.Passed = append(v.Passed, end)
		}
	}
	for _, pol := range p.Profiles {
		if a := run("", pol); a == model.Allow || a == model.Deny {
			return v
		}
	}
	v.By = model.RuleID{Point: model.AtNoProfile, Direction: p.Direction}
	return v
}

func (w *world) matches(r *model.MatchRule, pkt model.Packet) bool {
	is4 := pkt.Src.Is4()
	switch {
	case r.Unmatchable != "",
		r.IPVersion == 4 && !is4, r.IPVersion == 6 && is4,
		r.Protocol != nil && *r.Protocol != pkt.Protocol,
		r.Protocol != nil && (*r.Protocol == model.ProtoICMP && !is4 || *r.Protocol == model.ProtoICMPv6 && is4),
		r.NotProtocol != nil && *r.NotProtocol == pkt.Protocol,
		r.ICMP != nil && !icmpMatches(r.ICMP, pkt),
		r.NotICMP != nil && icmpMatches(r.NotICMP, pkt):
		return false
	}
	return w.sideMatches(&r.Source, pkt, pkt.Src, pkt.SrcPort) && w.sideMatches(&r.Destination, pkt, pkt.Dst, pkt.DstPort)
}

func icmpMatches(m *model.ICMPMatch, pkt model.Packet) bool {
	if pkt.Src.Is4() && pkt.Protocol != model.ProtoICMP || pkt.Src.Is6() && pkt.Protocol != model.ProtoICMPv6 {
		return false
	}
	return m.Type == pkt.ICMPType && (m.Code == nil || *m.Code == pkt.ICMPCode)
}

func (w *world) sideMatches(s *model.Side, pkt model.Packet, addr netip.Addr, port uint16) bool {
	family := func(p netip.Prefix) bool { return p.Addr().Is4() == addr.Is4() }
	holds := func(p netip.Prefix) bool { return p.Contains(addr) }
	if len(s.Nets) > 0 && (!slices.ContainsFunc(s.Nets, family) || !slices.ContainsFunc(s.Nets, holds)) {
		return false
	}
	if len(s.NotNets) > 0 && (!slices.ContainsFunc(s.NotNets, family) || slices.ContainsFunc(s.NotNets, holds)) {
		return false
	}
	for _, id := range s.In {
		if !w.has(id, addr) {
			return false
		}
	}
	for _, id := range s.NotIn {
		if w.has(id, addr) {
			return false
		}
	}
	fits := func(m *model.PortMatch) bool {
		if !model.HasPorts(pkt.Protocol) {
			return false
		}
		for _, r := range m.Ranges {
			if r.Lo <= port && port <= r.Hi {
				return true
			}
		}
		for _, n := range m.Named {
			if n.Protocol == pkt.Protocol && n.Port == port && w.has(n.Set, addr) {
				return true
			}
		}
		return false
	}
	return (s.Ports == nil || fits(s.Ports)) && (s.NotPorts == nil || !fits(s.NotPorts))
}

// fakeNumbers hands out numbers in order of first use.
type fakeNumbers struct {
	sets  map[model.SetID]uint32
	rules map[model.RuleID]uint32
}

func newFakeNumbers() *fakeNumbers {
	return &fakeNumbers{sets: map[model.SetID]uint32{}, rules: map[model.RuleID]uint32{}}
}

func (n *fakeNumbers) Set(id model.SetID) uint32   { return number(n.sets, id) }
func (n *fakeNumbers) Rule(id model.RuleID) uint32 { return number(n.rules, id) }

func number[K comparable](m map[K]uint32, id K) uint32 {
	if _, ok := m[id]; !ok {
		m[id] = uint32(len(m) + 1)
	}
	return m[id]
}

// classOf is the class of an address under a program: which of its sets it is a member of. ID is left 0.
func (w *world) classOf(p *Program, n *fakeNumbers, addr netip.Addr) Class {
	c := Class{Family: 6}
	if addr.Is4() {
		c.Family = 4
	}
	for _, id := range p.Sets {
		members, isNet := p.NetSets[id]
		if !isNet {
			members = w.sets[id]
		}
		if slices.ContainsFunc(members, func(p netip.Prefix) bool { return p.Contains(addr) }) {
			c.Sets = append(c.Sets, n.sets[id])
		}
	}
	slices.Sort(c.Sets)
	return c
}
