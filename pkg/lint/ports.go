package lint

import (
	"fmt"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// port is a port that a pod exposes by name; protocol 0 stands for any.
type port struct {
	name     string
	protocol uint8
}

// portOf is what a rule means by the name of a port.
func portOf(r *model.Rule, name string) port {
	if r.Protocol == nil {
		return port{name: name}
	}
	return port{name, *r.Protocol}
}

// String returns the name and the protocol: `"http" of protocol TCP`.
func (p port) String() string {
	of := " of this protocol"
	switch p.protocol {
	case 0:
		of = ""
	case model.ProtoTCP:
		of = " of protocol TCP"
	case model.ProtoUDP:
		of = " of protocol UDP"
	case model.ProtoSCTP:
		of = " of protocol SCTP"
	}
	return fmt.Sprintf("%q%s", p.name, of)
}

// expose notes the named ports of a pod.
func expose(exposed map[port]bool, ep *model.Endpoint) {
	for _, p := range ep.Ports {
		exposed[port{p.Name, p.Protocol}], exposed[port{p.Name, 0}] = true, true
	}
}

// ruleSide is one side of a rule of an API object.
type ruleSide struct {
	rule        int
	destination bool
}

// portNames finds the rules of which no port can match, because other pods than the rule is about have ports of the names. Names that no pod
// has are found without that.
func (l *linter) portNames(p activePolicy) {
	policy := l.policies[p.rules.Key]
	if policy == nil || p.rules.Refused != "" {
		return
	}
	rules := policy.Ingress
	if p.direction == model.Egress {
		rules = policy.Egress
	}
	if !slices.ContainsFunc(rules, func(r model.Rule) bool { return len(r.Source.NamedPorts)+len(r.Destination.NamedPorts) > 0 }) {
		return
	}
	matches := l.portMatches(p, rules)
	for i := range rules {
		r := &rules[i]
		for _, destination := range []bool{false, true} {
			name, side := "source", &r.Source
			if destination {
				name, side = "destination", &r.Destination
			}
			if r.Unmatchable != "" || matches[ruleSide{r.Index, destination}] {
				continue
			}
			for _, n := range side.NamedPorts {
				of := portOf(r, n)
				switch {
				case !l.exposed[of]: // reported of the policy as written
				case p.isOwn(destination):
					l.add(p.rules.Key, p.direction, r.Index, "no pod that the policy applies to has a port named %s", of)
				default:
					l.add(p.rules.Key, p.direction, r.Index, "the %s selects no pod with a port named %s", name, of)
				}
			}
		}
	}
}

// portMatches returns the sides whose ports may match. That of the policy's own pods matches by what these expose, the other one by the pods
// that it selects.
func (l *linter) portMatches(p activePolicy, rules []model.Rule) map[ruleSide]bool {
	matches := map[ruleSide]bool{}
	for i := range rules {
		r := &rules[i]
		destination := p.isOwn(true)
		side := &r.Source
		if destination {
			side = &r.Destination
		}
		exposed := func(name string) bool { return p.exposed[portOf(r, name)] }
		if len(side.Ports) > 0 || len(side.NamedPorts) == 0 || slices.ContainsFunc(side.NamedPorts, exposed) {
			matches[ruleSide{r.Index, destination}] = true
		}
	}
	for i := range p.rules.Rules {
		r := &p.rules.Rules[i]
		destination := !p.isOwn(true)
		side := &r.Source
		if destination {
			side = &r.Destination
		}
		found := func(s model.PortSet) bool { return len(l.graph.Members(s.Set)) > 0 }
		if m := side.Ports; m == nil || len(m.Ranges) > 0 || slices.ContainsFunc(m.Named, found) {
			matches[ruleSide{r.Index, destination}] = true
		}
	}
	return matches
}

// isOwn reports whether the source, or the destination, of the policy's rules is the pod that is judged.
func (p *activePolicy) isOwn(destination bool) bool {
	return destination == (p.direction == model.Ingress)
}
