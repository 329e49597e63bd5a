package match

import (
	"github.com/margay-project/margay/pkg/model"
)

// sideOption is an l4Option with the side whose ports it means.
type sideOption struct {
	l4Option
	side l4Side
}

// l4 turns what the rule says of protocol and ports into alternatives, and into options whose packets must skip all of
// them first. No alternatives: the rule cannot match.
//
// A negated list excludes exactly the packets that fit it, so packets without ports are not excluded by ports.
func (x *Expander) l4(r *model.MatchRule, families uint8) ([]l4Match, []sideOption) {
	m := l4Match{proto: -1, notProto: -1, families: families}
	if r.NotProtocol != nil {
		m.notProto = int(*r.NotProtocol)
	}
	if r.Protocol != nil {
		if !m.admits(*r.Protocol) {
			return nil, nil
		}
		m.proto, m.notProto = int(*r.Protocol), -1
	}
	matches := x.scratch.start(m)
	if r.ICMP != nil {
		matches = x.scratch.require(matches, destinationSide, icmpOptions(r.ICMP))
	}
	sides := [...]struct {
		side   l4Side
		entity *model.Side
	}{{destinationSide, &r.Destination}, {sourceSide, &r.Source}}
	for _, s := range sides {
		if s.entity.Ports != nil {
			matches = x.scratch.require(matches, s.side, x.portOptions(r, s.entity.Ports, s.entity == x.localSide(r), families))
		}
	}

	var skips []sideOption
	without := func(side l4Side, options []l4Option) {
		var left []l4Option
		matches, left = exclude(matches, side, options)
		for _, o := range left {
			skips = append(skips, sideOption{o, side})
		}
	}
	if r.NotICMP != nil {
		without(destinationSide, icmpOptions(r.NotICMP))
	}
	for _, s := range sides {
		if s.entity.NotPorts != nil {
			without(s.side, x.portOptions(r, s.entity.NotPorts, s.entity == x.localSide(r), families))
		}
	}
	return matches, skips
}

// portOptions lists the alternatives of a port list of the rule: its ranges in each protocol that has ports, and its
// named ports. Of the local side's named ports only those the endpoint's own address is a member of are left. Protocols
// the rule does not match are left out.
func (x *Expander) portOptions(r *model.MatchRule, p *model.PortMatch, local bool, families uint8) []l4Option {
	options := x.scratch.options[:0]
	ranges := normalize(p.Ranges)
	for _, proto := range portProtocols {
		if r.Protocol == nil || *r.Protocol == proto {
			options = append(options, l4Option{proto: proto, families: families, ranges: ranges})
		}
	}
	for _, n := range p.Named {
		if !model.HasPorts(n.Protocol) || r.Protocol != nil && *r.Protocol != n.Protocol {
			continue
		}
		o := l4Option{
			proto: n.Protocol, families: families, set: n.Set,
			ranges: []model.PortRange{{Lo: n.Port, Hi: n.Port}},
		}
		if local {
			o.set, o.families = "", families&x.membership(n.Set)
		}
		options = append(options, o)
	}
	x.scratch.options = options
	return mergeOptions(options)
}

// membership returns the flags of the families in which the endpoint's own address is in the set.
func (x *Expander) membership(set model.SetID) uint8 {
	var families uint8
	for _, own := range x.own {
		if x.local.In(own.version, set) {
			families |= own.flag
		}
	}
	return families
}
