package verify

import (
	"math/bits"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// demand is the policy of one direction as the objects define it (semantics §5): its rules in the order of evaluation. The rules that
// a packet fits are computed once for each kind of remote addresses and once for each kind of ports; a rule fits if it fits both.
type demand struct {
	direction model.Direction
	steps     []step
	points    []model.RuleID
	byText    map[string]int // points by their texts
	room      int            // bytes left for further sets of steps; less than 0: there were too many
}

// step is a rule, or the end of a tier or of all.
type step struct {
	rule   *model.MatchRule // nil: an end, which every packet fits
	action model.Action
	point  int
	next   int  // the step after Pass
	mixed  bool // its ports depend on the remote address, so that address and port must be matched together
}

func newDemand(p *model.DirectionPolicy) *demand {
	d := &demand{direction: p.Direction, byText: map[string]int{}, room: mostBytes}
	d.addPolicy(p)
	return d
}

// addPolicy adds the steps of a policy behind those of others. No packet goes from one policy to another.
func (d *demand) addPolicy(p *model.DirectionPolicy) {
	for _, t := range p.Tiers {
		d.addTier(t)
	}
	for _, profile := range p.Profiles {
		first := len(d.steps)
		d.addRules("", profile)
		d.passTo(first)
	}
	d.addEnd(model.RuleID{Point: model.AtNoProfile, Direction: d.direction}, model.Deny)
}

func (d *demand) addTier(t model.TierPolicy) {
	first, isolating := len(d.steps), model.PolicyKey{}
	for _, p := range t.Policies {
		if p.Staged {
			continue
		}
		if isolating == (model.PolicyKey{}) {
			isolating = p.Key
		}
		d.addRules(t.Name, p)
	}
	if isolating == (model.PolicyKey{}) {
		return
	}
	action := model.Deny
	if t.Default == model.Pass {
		action = model.Pass
	}
	d.addEnd(model.RuleID{Point: model.AtEndOfTier, Direction: d.direction, Tier: t.Name, Policy: isolating}, action)
	d.passTo(first)
}

func (d *demand) addRules(tier string, p *model.PolicyRules) {
	for i := range p.Rules {
		r := &p.Rules[i]
		id := model.RuleID{Point: model.AtRule, Direction: d.direction, Tier: tier, Policy: p.Key, Index: r.Index}
		remote := d.remote(r)
		d.steps = append(d.steps, step{rule: r, action: r.Action, point: d.point(id), mixed: named(remote.Ports) || named(remote.NotPorts)})
	}
}

func named(m *model.PortMatch) bool { return m != nil && len(m.Named) > 0 }

func (d *demand) addEnd(id model.RuleID, a model.Action) {
	d.steps = append(d.steps, step{action: a, point: d.point(id), next: len(d.steps) + 1})
}

// passTo makes Pass of the steps from first on continue behind the last step.
func (d *demand) passTo(first int) {
	for i := first; i < len(d.steps); i++ {
		d.steps[i].next = len(d.steps)
	}
}

func (d *demand) point(id model.RuleID) int {
	text := id.String()
	n, ok := d.byText[text]
	if !ok {
		n = len(d.points)
		d.points, d.byText[text] = append(d.points, id), n
	}
	return n
}

// remote and own are the sides of a rule.
func (d *demand) remote(r *model.MatchRule) *model.Side {
	if d.direction == model.Ingress {
		return &r.Source
	}
	return &r.Destination
}

func (d *demand) own(r *model.MatchRule) *model.Side {
	if d.direction == model.Ingress {
		return &r.Destination
	}
	return &r.Source
}

// set is a set of steps.
type set []uint64

func (d *demand) newSet() set {
	n := (len(d.steps) + 63) / 64
	d.room -= 8 * n
	return make(set, n)
}

func (s set) add(i int) { s[i/64] |= 1 << (i % 64) }

// fitting returns the steps whose rule fits, and all ends.
func (d *demand) fitting(fits func(*model.MatchRule) bool) set {
	s := d.newSet()
	for i := range d.steps {
		if r := d.steps[i].rule; r == nil || fits(r) {
			s.add(i)
		}
	}
	return s
}

// verdict is the verdict that the objects demand for one packet.
type verdict struct {
	allow        bool
	by           int // the deciding point
	passes, logs []int
}

// judge walks through the steps that are in both sets, beginning with the first step of a policy. confirm decides whether a mixed one fits.
func (d *demand) judge(first int, row, column set, confirm func(*model.MatchRule) bool, v *verdict) {
	v.passes, v.logs = v.passes[:0], v.logs[:0]
	for i := first; ; {
		word := row[i/64] & column[i/64] >> (i % 64) << (i % 64)
		if word == 0 {
			i = i/64*64 + 64 // the last step of all fits every packet
			continue
		}
		i = i/64*64 + bits.TrailingZeros64(word)
		s := &d.steps[i]
		if s.mixed && !confirm(s.rule) {
			i++
			continue
		}
		switch s.action {
		case model.Log:
			v.logs = append(v.logs, s.point)
			i++
		case model.Pass:
			v.passes = append(v.passes, s.point)
			i = s.next
		default:
			v.allow, v.by = s.action == model.Allow, s.point
			return
		}
	}
}

// place is an address as rules see it.
type place struct {
	addr netip.Addr
	in   func(model.SetID) bool
	net  func(netip.Prefix) bool
}

// addrFits reports whether the address conditions of a side hold (semantics §7, D-9).
func addrFits(s *model.Side, at place) bool {
	for _, id := range s.In {
		if !at.in(id) {
			return false
		}
	}
	if slices.ContainsFunc(s.NotIn, at.in) {
		return false
	}
	if len(s.Nets) > 0 && !slices.ContainsFunc(s.Nets, at.net) {
		return false
	}
	if len(s.NotNets) == 0 {
		return true
	}
	ofFamily := func(n netip.Prefix) bool { return n.Addr().Is4() == at.addr.Is4() }
	return slices.ContainsFunc(s.NotNets, ofFamily) && !slices.ContainsFunc(s.NotNets, at.net)
}

// protocolFits reports whether the conditions that belong to neither side hold for a packet.
func protocolFits(r *model.MatchRule, p *model.Packet, family uint8) bool {
	switch {
	case r.Unmatchable != "", r.IPVersion != 0 && r.IPVersion != family:
		return false
	case r.Protocol != nil && *r.Protocol != p.Protocol, r.NotProtocol != nil && *r.NotProtocol == p.Protocol:
		return false
	case r.Protocol != nil && (*r.Protocol == model.ProtoICMP && family != 4 || *r.Protocol == model.ProtoICMPv6 && family != 6):
		return false
	}
	icmp := hasTypes(p.Protocol, family)
	is := func(m *model.ICMPMatch) bool {
		return icmp && m.Type == p.ICMPType && (m.Code == nil || *m.Code == p.ICMPCode)
	}
	return (r.ICMP == nil || is(r.ICMP)) && (r.NotICMP == nil || !is(r.NotICMP))
}

// hasTypes reports whether the protocol is the ICMP of the family.
func hasTypes(protocol, family uint8) bool {
	return protocol == model.ProtoICMP && family == 4 || protocol == model.ProtoICMPv6 && family == 6
}

// portsFit reports whether the port conditions of a side hold. in nil: the sets of the address are not known, and the result is true
// if it depends on them.
func portsFit(s *model.Side, protocol uint8, port uint16, in func(model.SetID) bool) bool {
	if s.Ports != nil {
		exact, byAddr := portIn(s.Ports, protocol, port, in)
		if !exact && !byAddr {
			return false
		}
	}
	if s.NotPorts != nil {
		exact, byAddr := portIn(s.NotPorts, protocol, port, in)
		if exact || byAddr && in != nil {
			return false
		}
	}
	return true
}

// portIn reports whether the ranges of a list have the port (exact), and whether its named ports have it for the address (byAddr); with
// in nil, for some address.
func portIn(m *model.PortMatch, protocol uint8, port uint16, in func(model.SetID) bool) (exact, byAddr bool) {
	if !model.HasPorts(protocol) {
		return false, false
	}
	exact = slices.ContainsFunc(m.Ranges, func(r model.PortRange) bool { return r.Contains(port) })
	byAddr = slices.ContainsFunc(m.Named, func(n model.PortSet) bool {
		return n.Protocol == protocol && n.Port == port && (in == nil || in(n.Set))
	})
	return exact, byAddr
}
