// Package policytest has what tests of the compiler share: a naive evaluator of policies, random policies and packets, and
// stand-ins for what a Program is made with.
package policytest

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/model"
)

// World is what the naive evaluator and the fakes know: the members of sets and the endpoint's own addresses.
type World struct {
	Sets map[model.SetID][]netip.Prefix
	Own  []netip.Addr
}

// Has reports whether an address is a member of the set.
func (w *World) Has(set model.SetID, addr netip.Addr) bool {
	return slices.ContainsFunc(w.Sets[set], func(p netip.Prefix) bool { return p.Contains(addr) })
}

// Addr implements match.Local.
func (w *World) Addr(family uint8) (netip.Addr, bool) {
	i := slices.IndexFunc(w.Own, func(a netip.Addr) bool { return a.Is4() == (family == 4) })
	if i < 0 {
		return netip.Addr{}, false
	}
	return w.Own[i], true
}

// In implements match.Local.
func (w *World) In(family uint8, set model.SetID) bool {
	addr, ok := w.Addr(family)
	return ok && w.Has(set, addr)
}

// Verdict evaluates a policy straight from its definition, address by address.
func (w *World) Verdict(p *model.DirectionPolicy, pkt model.Packet) model.Verdict {
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

func (w *World) matches(r *model.MatchRule, pkt model.Packet) bool {
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

func (w *World) sideMatches(s *model.Side, pkt model.Packet, addr netip.Addr, port uint16) bool {
	family := func(p netip.Prefix) bool { return p.Addr().Is4() == addr.Is4() }
	holds := func(p netip.Prefix) bool { return p.Contains(addr) }
	if len(s.Nets) > 0 && (!slices.ContainsFunc(s.Nets, family) || !slices.ContainsFunc(s.Nets, holds)) {
		return false
	}
	if len(s.NotNets) > 0 && (!slices.ContainsFunc(s.NotNets, family) || slices.ContainsFunc(s.NotNets, holds)) {
		return false
	}
	for _, id := range s.In {
		if !w.Has(id, addr) {
			return false
		}
	}
	for _, id := range s.NotIn {
		if w.Has(id, addr) {
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
			if n.Protocol == pkt.Protocol && n.Port == port && w.Has(n.Set, addr) {
				return true
			}
		}
		return false
	}
	return (s.Ports == nil || fits(s.Ports)) && (s.NotPorts == nil || !fits(s.NotPorts))
}

// ClassOf is the class of an address under a program: which of its sets it is a member of. ID is left 0.
func (w *World) ClassOf(p *match.Program, n *Numbers, addr netip.Addr) classes.Class {
	c := classes.Class{Family: 6}
	if addr.Is4() {
		c.Family = 4
	}
	for _, id := range p.Sets {
		members, isNet := p.NetSets[id]
		if !isNet {
			members = w.Sets[id]
		}
		if slices.ContainsFunc(members, func(p netip.Prefix) bool { return p.Contains(addr) }) {
			c.Sets = append(c.Sets, n.Sets[id])
		}
	}
	slices.Sort(c.Sets)
	return c
}

// ClassesOf gives every remote address its class; equal ones share an id.
func (w *World) ClassesOf(p *match.Program, n *Numbers) (byAddr map[netip.Addr]classes.Class, all []classes.Class) {
	byAddr = map[netip.Addr]classes.Class{}
	ids := map[string]uint32{"4[]": classes.None4, "6[]": classes.None6}
	for _, a := range Remotes {
		c := w.ClassOf(p, n, a)
		key := fmt.Sprint(c.Family, c.Sets)
		_, known := ids[key]
		if !known {
			ids[key] = uint32(len(ids))
		}
		c.ID = ids[key]
		byAddr[a] = c
		if !known {
			all = append(all, c)
		}
	}
	return byAddr, all
}
