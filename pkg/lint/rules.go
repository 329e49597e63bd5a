package lint

import (
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// policy looks at a policy as written.
func (l *linter) policy(key model.PolicyKey, p *model.Policy, translated *translatedAddrs) {
	switch {
	case l.applies[key], p.StagedAction == model.StagedDelete && l.replaces[key]:
	case p.StagedAction == model.StagedDelete:
		l.add(key, model.Ingress, -1, "there is no enforced policy of its name that selects a pod, so it would take nothing away")
	case !p.AppliesIngress && !p.AppliesEgress:
		l.add(key, model.Ingress, -1, "has no rules, so it decides nothing")
	case l.replaces[key]:
		l.add(key, model.Ingress, -1, "selects no pod, and would take %s away from those that it selects", key.Enforced().ObjectText())
	default:
		l.add(key, model.Ingress, -1, "selects no pod")
	}
	for d, rules := range map[model.Direction][]model.Rule{model.Ingress: p.Ingress, model.Egress: p.Egress} {
		for i := range rules {
			r := &rules[i]
			for name, side := range map[string]*model.Entity{"source": &r.Source, "destination": &r.Destination} {
				if text := translated.side(name, side); text != "" {
					l.add(key, d, r.Index, "%s", text)
				}
				if side.Service != nil && r.Unmatchable == "" {
					l.service(key, d, r.Index, name, *side.Service)
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

// service looks at a Service that is one side of a rule. As a destination it matches by address and port, as a source by address.
func (l *linter) service(key model.PolicyKey, d model.Direction, rule int, side string, of model.ServiceKey) {
	backends := func(s *model.EndpointSlice) bool {
		return len(s.Addrs) > 0 && (side == "source" || len(s.Ports) > 0)
	}
	switch list := l.graph.Slices(of); {
	case len(list) == 0:
		l.add(key, d, rule, "the %s matches nothing: there is no EndpointSlice of Service %s", side, of)
	case !slices.ContainsFunc(list, backends):
		l.add(key, d, rule, "the %s Service %s has no backends", side, of)
	}
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
		if ok && len(members) == 0 && !l.graph.IsOfService(id) { // Services are looked at as written
			text, _ := l.graph.SetText(id)
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
