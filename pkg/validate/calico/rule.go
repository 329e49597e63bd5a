package calico

import (
	"cmp"
	"slices"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
)

// ruleList is one of the two lists of rules.
type ruleList struct {
	path     string
	typeName string
	ingress  bool
}

var (
	ingressRules = ruleList{"spec.ingress", typeIngress, true}
	egressRules  = ruleList{"spec.egress", typeEgress, false}
)

func (l ruleList) direction() model.Direction {
	if l.ingress {
		return model.Ingress
	}
	return model.Egress
}

// maxRules is what one list holds.
const maxRules = 1024

// rules converts a list of rules. Those of a direction that the policy is not about are checked, and mean nothing.
func (c *conversion) rules(list ruleList, rules []Rule, applies bool) []model.Rule {
	if c.counted && len(rules) > maxRules {
		c.reject(list.path, "has %d rules; the limit is %d", len(rules), maxRules)
		return nil
	}
	converted := make([]model.Rule, 0, len(rules))
	for i := range rules {
		converted = append(converted, ruleAt{c, list, i}.convert(&rules[i]))
	}
	if !applies && len(rules) > 0 {
		if c.OK() {
			c.Add(validate.Warning, list.path, "the rules have no effect, because types does not contain %s", list.typeName)
		}
		return nil
	}
	return converted
}

var actions = map[string]model.Action{"Allow": model.Allow, "Deny": model.Deny, "Pass": model.Pass, "Log": model.Log}

// ruleAt converts one rule, and knows where it is. Its path is made when there is something to report.
type ruleAt struct {
	*conversion
	list  ruleList
	index int
}

func (c ruleAt) path(field string) string { return element(c.list.path, c.index) + "." + field }

func (c ruleAt) convert(r *Rule) model.Rule {
	m := model.Rule{Index: c.index}
	var has newer
	m.Action, has = c.action(r.Action)
	if r.Metadata != nil {
		if !c.stored { // annotations decide nothing
			c.annotations(r.Metadata.Annotations)
		}
		m.Name = validate.RuleName(r.Metadata.Annotations[annotationName])
	}
	if v := r.IPVersion; v != nil {
		if *v != 4 && *v != 6 {
			c.reject(c.path("ipVersion"), "%d must be 4 or 6", *v)
		}
		m.IPVersion = uint8(*v)
	}
	has = cmp.Or(has, c.newerProtocol("protocol", r.Protocol), c.newerProtocol("notProtocol", r.NotProtocol))
	m.Protocol = c.protocol("protocol", r.Protocol, m.IPVersion)
	m.NotProtocol = c.protocol("notProtocol", r.NotProtocol, m.IPVersion)
	m.ICMP, m.NotICMP = c.icmp("icmp", r.ICMP), c.icmp("notICMP", r.NotICMP)
	if r.ICMP != nil && r.Protocol == nil {
		c.reject(c.path("icmp"), "needs protocol ICMP or ICMPv6")
	} else if r.ICMP != nil && m.Protocol != nil && !isICMP(*m.Protocol) {
		c.reject(c.path("icmp"), "needs protocol ICMP or ICMPv6, not %s", model.ProtocolName(*m.Protocol))
	}
	m.Source = sideAt{c, "source", m.Action == model.Deny}.convert(&r.Source, !c.list.ingress)
	m.Destination = sideAt{c, "destination", m.Action == model.Deny}.convert(&r.Destination, c.list.ingress)
	c.checkPorts(r, m.Protocol)
	c.checkFamilies(r, &m)
	if r.HTTP != nil {
		c.checkHTTP(r, &m)
		m.Unmatchable = "it is about HTTP requests, which are not looked into"
		if c.OK() {
			c.Add(validate.RulesLeftOut, c.path("http"), "HTTP requests are not looked into: the rule never matches")
		}
	}
	if field, found := c.unknownField(); found {
		has = cmp.Or(has, field)
	}
	if has != (newer{}) {
		return c.failClosed(m, has)
	}
	return m
}

func isICMP(protocol uint8) bool { return protocol == model.ProtoICMP || protocol == model.ProtoICMPv6 }

// protocol reads a protocol, and checks that it is one of the IP version, if there is one.
func (c ruleAt) protocol(field string, s *Scalar, version uint8) *uint8 {
	if s == nil {
		return nil
	}
	number, wrong := s.protocol()
	switch {
	case c.newerProtocol(field, s) != newer{}:
		return nil
	case wrong != "":
		c.reject(c.path(field), "%q %s", s.text, wrong)
		return nil
	case c.stored: // either may be of the other family, and then it matches no packet
	case number == model.ProtoICMP && version == 6:
		c.reject(c.path(field), "ICMP is a protocol of IPv4, and ipVersion is 6")
	case number == model.ProtoICMPv6 && version == 4:
		c.reject(c.path(field), "ICMPv6 is a protocol of IPv6, and ipVersion is 4")
	}
	return &number
}

// icmp reads a type and a code. Nil: neither is there.
func (c ruleAt) icmp(field string, i *ICMP) *model.ICMPMatch {
	switch {
	case i == nil || i.Type == nil && i.Code == nil:
		return nil
	case i.Type == nil:
		c.reject(c.path(field), "a code needs a type")
		return nil
	case *i.Type < 0 || *i.Type > 254:
		c.reject(c.path(field+".type"), "%d must be 0 to 254", *i.Type)
		return nil
	}
	m := &model.ICMPMatch{Type: uint8(*i.Type)}
	if i.Code != nil {
		if *i.Code < 0 || *i.Code > 255 {
			c.reject(c.path(field+".code"), "%d must be 0 to 255", *i.Code)
			return nil
		}
		m.Code = new(uint8(*i.Code))
	}
	return m
}

// checkPorts: numbers of ports are those of a protocol.
func (c ruleAt) checkPorts(r *Rule, protocol *uint8) {
	if protocol != nil && model.HasPorts(*protocol) || protocol == nil && r.Protocol != nil {
		return
	}
	for _, l := range []struct {
		field string
		ports []Scalar
	}{
		{"source.ports", r.Source.Ports}, {"source.notPorts", r.Source.NotPorts},
		{"destination.ports", r.Destination.Ports}, {"destination.notPorts", r.Destination.NotPorts},
	} {
		isNumber := func(s Scalar) bool { _, name, wrong := s.port(); return name == "" && wrong == "" }
		if len(l.ports) > 0 && (protocol != nil || slices.ContainsFunc(l.ports, isNumber)) {
			c.reject(c.path(l.field), "needs protocol TCP, UDP or SCTP")
		}
	}
}
