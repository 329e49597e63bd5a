package calc

import (
	"cmp"
	"slices"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// build works out the rules of a ruleset from its source and reports whether they differ from before. Rules that are
// equal keep their pointer.
func (x *setIndex) build(rs *ruleset) bool {
	b := builder{sets: x, uses: map[*definition]struct{}{}}
	rules := &model.PolicyRules{Key: rs.key, Staged: rs.staged, Rules: make([]model.MatchRule, 0, len(rs.source))}
	for i := range rs.source {
		rules.Rules = append(rules.Rules, b.rule(&rs.source[i]))
	}
	x.use(rs, b.uses)
	if was := rs.rules; was != nil && was.Key == rules.Key && was.Staged == rules.Staged && equalRules(was.Rules, rules.Rules) {
		return false
	}
	rs.rules = rules
	return true
}

// use replaces the definitions a ruleset uses.
func (x *setIndex) use(rs *ruleset, now map[*definition]struct{}) {
	for d := range now {
		d.users[rs] = struct{}{}
	}
	for d := range rs.uses {
		if _, ok := now[d]; ok {
			continue
		}
		if delete(d.users, rs); len(d.users) == 0 {
			x.unused[d] = struct{}{}
		}
	}
	rs.uses = now
}

// dropUnused drops the definitions that have lost their last user.
func (x *setIndex) dropUnused() {
	for d := range x.unused {
		if len(d.users) == 0 {
			x.undefine(d)
		}
	}
	empty(&x.unused)
}

// builder turns Rules into MatchRules and collects the definitions they refer to.
type builder struct {
	sets *setIndex
	uses map[*definition]struct{}
}

func (b *builder) rule(r *model.Rule) model.MatchRule {
	m := model.MatchRule{
		Action:      r.Action,
		Index:       r.Index,
		IPVersion:   r.IPVersion,
		Protocol:    r.Protocol,
		NotProtocol: r.NotProtocol,
		ICMP:        r.ICMP,
		NotICMP:     r.NotICMP,
		Unmatchable: r.Unmatchable,
	}
	if m.Unmatchable != "" {
		return m // no sets for a rule that never matches
	}
	m.Source = b.side(&r.Source, r.Protocol)
	m.Destination = b.side(&r.Destination, r.Protocol)
	if s := r.Source.Service; s != nil {
		m.Source.In = append(m.Source.In, b.set(b.sets.byService(kindServiceAddrs, *s)))
	}
	if s := r.Destination.Service; s != nil {
		m.Destination.Ports = &model.PortMatch{Named: b.ports(b.sets.byService(kindServicePort, *s))}
	}
	return m
}

// side resolves one side of a rule, but for its Service. Validation does not let a side have both a Service and ports.
func (b *builder) side(e *model.Entity, protocol *uint8) model.Side {
	s := model.Side{Nets: orNil(e.Nets), NotNets: orNil(e.NotNets)}
	// With named ports alone the selector is folded into their sets.
	folded := len(e.NamedPorts) > 0 && len(e.Ports) == 0
	if e.Selector != nil && !folded {
		s.In = []model.SetID{b.set(b.sets.bySelector(e.Selector))}
	}
	if e.NotSelector != nil {
		s.NotIn = []model.SetID{b.set(b.sets.bySelector(e.NotSelector))}
	}
	s.Ports = b.portMatch(e.Ports, e.NamedPorts, protocol, e.Selector)
	s.NotPorts = b.portMatch(e.NotPorts, e.NotNamedPorts, protocol, e.Selector)
	return s
}

// portMatch is nil without ports of either kind. Names are those that endpoints expose that sel selects; nil: all.
func (b *builder) portMatch(ranges []model.PortRange, names []string, protocol *uint8, sel *selector.Selector) *model.PortMatch {
	if len(ranges)+len(names) == 0 {
		return nil
	}
	if sel == nil {
		sel = selector.All()
	}
	m := &model.PortMatch{Ranges: orNil(ranges)}
	for _, name := range names {
		m.Named = append(m.Named, b.ports(b.sets.byNamedPort(name, protocol, sel))...)
	}
	slices.SortFunc(m.Named, func(a, b model.PortSet) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Set, b.Set))
	})
	m.Named = slices.Compact(m.Named)
	return m
}

// set returns the id of the only set of a definition that is not by port.
func (b *builder) set(d *definition) model.SetID {
	b.uses[d] = struct{}{}
	return d.sets[portKey{}].id
}

// ports returns the sets of a definition by port, by protocol and port.
func (b *builder) ports(d *definition) []model.PortSet {
	b.uses[d] = struct{}{}
	var list []model.PortSet
	for _, k := range d.ports {
		list = append(list, model.PortSet{Protocol: k.protocol, Port: k.port, Set: d.sets[k].id})
	}
	return list
}

// orNil makes an empty list nil, so that equal rules compare equal in tests, too.
func orNil[T any](list []T) []T {
	if len(list) == 0 {
		return nil
	}
	return list
}
