package calico

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"unicode"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
	"github.com/margay-project/margay/pkg/validate"
)

// The lists of one side of a rule.
const (
	maxNets  = 256
	maxPorts = 50
)

// sideAt converts one side of a rule.
type sideAt struct {
	ruleAt
	name   string
	denies bool // the rule's action is Deny
}

func (c sideAt) path(field string) string { return c.ruleAt.path(c.name + "." + field) }

// convert converts the side. own: it is that of the endpoints that the policy applies to, on which no Service may stand.
func (c sideAt) convert(e *Entity, own bool) model.Entity {
	m := model.Entity{
		Nets:    c.nets("nets", e.Nets),
		NotNets: c.nets("notNets", e.NotNets),
	}
	m.Ports, m.NamedPorts = c.ports("ports", e.Ports)
	m.NotPorts, m.NotNamedPorts = c.ports("notPorts", e.NotPorts)
	if e.Services != nil {
		m.Service = c.service(e, own)
		return m
	}
	m.Selector, m.NotSelector = c.selectors(e)
	return m
}

// selectors joins all selectors of one side. With a positive one the negated one narrows it; alone it is about outside
// addresses, too (semantics §7).
func (c sideAt) selectors(e *Entity) (positive, negative *selector.Selector) {
	var parts []*selector.Selector
	add := func(s *selector.Selector) {
		if s != nil {
			parts = append(parts, s)
		}
	}
	namespaces := c.selector("namespaceSelector", e.NamespaceSelector, c.parseNamespaces)
	own := c.selector("selector", e.Selector, c.parseSelector)
	negative = c.selector("notSelector", e.NotSelector, c.parseSelector)
	accounts, byAccount := c.serviceAccounts(e.ServiceAccounts)
	switch {
	case namespaces != nil:
		add(ofNamespaces(namespaces))
		if !c.denies && !namespaces.IsAll() {
			add(unlessUnknown(ofNamespaces(namespaces)))
		}
	case c.namespaced && (own != nil || negative != nil || byAccount):
		add(inNamespace(c.namespace))
	}
	add(own)
	add(accounts)
	if len(parts) == 0 {
		return nil, negative
	}
	if negative != nil {
		parts = append(parts, selector.Not(negative))
	}
	return selector.And(parts...), nil
}

// serviceAccounts selects what runs as one of the service accounts; constrains is false where every one does.
func (c sideAt) serviceAccounts(a *ServiceAccounts) (s *selector.Selector, constrains bool) {
	if a == nil {
		return nil, false
	}
	seen := make(map[string]bool, len(a.Names)) // nothing bounds the list but the size of an object
	for i, name := range a.Names {
		field := element(c.path("serviceAccounts.names"), i)
		for _, wrong := range validate.DNSSubdomain(name) {
			c.reject(field, "%q is no name of a service account: %s", name, wrong)
		}
		if c.counted && seen[name] {
			c.reject(field, "%q is there twice", name)
		}
		seen[name] = true
	}
	var names *selector.Selector
	switch len(a.Names) {
	case 0:
	case 1:
		names = selector.Equal(validate.LabelServiceAccount, a.Names[0])
	default:
		names = selector.In(validate.LabelServiceAccount, a.Names...)
	}
	selected := c.selector("serviceAccounts.selector", a.Selector, c.parseSelector)
	if selected != nil {
		selected = ofServiceAccounts(selected)
	}
	if names == nil && selected == nil {
		return nil, false
	}
	return selector.And(names, selected), true
}

// service reads a Service, which stands alone on its side.
func (c sideAt) service(e *Entity, own bool) *model.ServiceKey {
	s, path := e.Services, c.path("services")
	switch {
	case own:
		c.reject(path, "may stand in the source of an ingress rule or the destination of an egress rule only")
	case s.Name == "":
		c.reject(path+".name", "a service must have a name")
	case len(validate.DNSSubdomain(s.Name)) > 0:
		c.reject(path+".name", "%q is no name of a service: %s", s.Name, validate.DNSSubdomain(s.Name)[0])
	case s.Namespace != "" && len(validate.DNSLabel(s.Namespace)) > 0:
		c.reject(path+".namespace", "%q is no name of a namespace: %s", s.Namespace, validate.DNSLabel(s.Namespace)[0])
	case s.Namespace == "" && !c.namespaced:
		c.reject(path+".namespace", "must be there: the policy has no namespace of its own")
	}
	destination := c.name == "destination"
	for _, other := range []struct {
		name  string
		there bool
	}{
		{"selector", e.Selector != ""}, {"notSelector", e.NotSelector != ""}, {"namespaceSelector", e.NamespaceSelector != ""},
		{"serviceAccounts", e.ServiceAccounts != nil}, {"nets", len(e.Nets) > 0}, {"notNets", len(e.NotNets) > 0},
		{"ports", destination && len(e.Ports) > 0}, {"notPorts", destination && len(e.NotPorts) > 0},
	} {
		if other.there {
			c.reject(c.path(other.name), "must not stand beside services")
		}
	}
	return &model.ServiceKey{Namespace: cmp.Or(s.Namespace, c.namespace), Name: s.Name}
}

// nets reads CIDRs. An address without a mask is a prefix of full length. Bits beyond the mask are cut off, as those of a
// Kubernetes NetworkPolicy: not every cluster that stores such objects refuses them. A prefix that is there twice counts once.
func (c sideAt) nets(field string, texts []string) []netip.Prefix {
	if c.counted && len(texts) > maxNets {
		c.reject(c.path(field), "has %d entries; the limit is %d", len(texts), maxNets)
		return nil
	}
	if len(texts) == 0 {
		return nil
	}
	var nets []netip.Prefix
	seen := make(map[netip.Prefix]string, len(texts)) // nothing bounds the list but the size of an object
	for i, text := range texts {
		n, wrong := network(text)
		before, twice := seen[n]
		switch {
		case wrong != "":
		case twice && before == text && c.counted:
			wrong = "is there twice"
		case twice && !c.stored:
			c.Add(validate.Warning, element(c.path(field), i), "%q is there twice: as %q, too", text, before)
		case strings.Contains(text, "/") && n.Addr() != netip.MustParsePrefix(text).Addr():
			c.Add(validate.Warning, element(c.path(field), i), "%q has bits beyond its mask; it is used as %s", text, n)
		}
		if wrong != "" {
			c.reject(element(c.path(field), i), "%q %s", text, wrong)
			continue
		}
		if !twice {
			seen[n] = text
			nets = append(nets, n)
		}
	}
	return nets
}

// ports reads a list of ports: numbers on one hand, names on the other.
func (c sideAt) ports(field string, list []Scalar) (ranges []model.PortRange, names []string) {
	if c.counted && len(list) > maxPorts {
		c.reject(c.path(field), "has %d entries; the limit is %d", len(list), maxPorts)
		return nil, nil
	}
	for i, s := range list {
		r, name, wrong := s.port()
		switch {
		case wrong != "":
			c.reject(element(c.path(field), i), "%q %s", s.text, wrong)
		case name != "":
			names = append(names, name)
			if !strings.ContainsFunc(name, unicode.IsLetter) {
				c.Add(validate.Warning, element(c.path(field), i), "%q is the name of no pod's port, so it matches nothing; a range is written 80:90", name)
			}
		default:
			ranges = append(ranges, r)
		}
	}
	slices.Sort(names)
	return validate.MergePorts(ranges), slices.Compact(names)
}
