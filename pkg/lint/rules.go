package lint

import (
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// policy looks at a policy as written.
func (l *linter) policy(key model.PolicyKey, p *model.Policy, translated *translatedAddrs) {
	switch {
	case l.applies[key]:
	case p.StagedAction == model.StagedDelete:
		l.add(key, model.Ingress, -1, "there is no enforced policy of its name that selects a pod, so it would take nothing away")
	case !p.AppliesIngress && !p.AppliesEgress:
		l.add(key, model.Ingress, -1, "has no rules, so it decides nothing")
	default:
		l.add(key, model.Ingress, -1, "selects no pod")
	}
	for d, rules := range map[model.Direction][]model.Rule{model.Ingress: p.Ingress, model.Egress: p.Egress} {
		for i := range rules {
			r := &rules[i]
			if s := r.Destination.Service; s != nil && !l.hasBackends(*s) {
				l.add(key, d, r.Index, "the destination Service %s has no backends", s)
			}
			for name, side := range map[string]*model.Entity{"source": &r.Source, "destination": &r.Destination} {
				if text := translated.side(name, side); text != "" {
					l.add(key, d, r.Index, "%s", text)
				}
				for _, name := range slices.Concat(side.NamedPorts, side.NotNamedPorts) {
					if of := portOf(r, name); !l.exposed[of] {
						l.add(key, d, r.Index, "no pod has a port named %s", of)
					}
				}
			}
		}
	}
}

// hasBackends reports whether a rule by the Service as a destination may match anything.
func (l *linter) hasBackends(key model.ServiceKey) bool {
	return slices.ContainsFunc(l.graph.Slices(key), func(s *model.EndpointSlice) bool { return len(s.Addrs) > 0 && len(s.Ports) > 0 })
}

// resolved looks at a policy that applies to pods, with its selectors resolved.
func (l *linter) resolved(p activePolicy) {
	for i := range p.rules.Rules {
		r := &p.rules.Rules[i]
		if r.Unmatchable != "" {
			continue // reported when the object was read
		}
		l.side(p, r, "source", &r.Source)
		l.side(p, r, "destination", &r.Destination)
	}
	l.portNames(p)
}

func (l *linter) side(p activePolicy, r *model.MatchRule, name string, s *model.Side) {
	for _, id := range s.In {
		members, ok := l.graph.SetMembers(id)
		if text, _ := l.graph.SetText(id); ok && len(members) == 0 {
			l.add(p.rules.Key, p.direction, r.Index, "the %s selects nothing: %s", name, text)
		}
	}
	for _, v6 := range []bool{false, true} {
		if p.families[family(v6)] && (r.IPVersion == 0 || v6 == (r.IPVersion == 6)) {
			l.lists(p, r, name, s, v6)
		}
	}
}

// lists looks for what the reading of CIDR lists by family (semantics D-9) makes surprising.
func (l *linter) lists(p activePolicy, r *model.MatchRule, name string, s *model.Side, v6 bool) {
	of := func(n netip.Prefix) bool { return n.Addr().Is6() == v6 }
	everything := func(n netip.Prefix) bool { return n.Bits() == 0 }
	version := map[bool]string{false: "IPv4", true: "IPv6"}
	has, hasNot := slices.ContainsFunc(s.Nets, of), slices.ContainsFunc(s.NotNets, of)
	switch {
	case len(s.Nets) > 0 && !has:
		if slices.ContainsFunc(s.Nets, everything) {
			l.add(p.rules.Key, p.direction, r.Index, "the %s is any %s address, so the rule matches no %s packet",
				name, version[!v6], version[v6])
		}
	case len(s.NotNets) > 0 && !hasNot:
		l.add(p.rules.Key, p.direction, r.Index, "the %s excludes only %s networks, so the rule matches no %s packet",
			name, version[!v6], version[v6])
	}
}
