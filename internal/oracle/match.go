package oracle

import (
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// reading is how a rule takes pods that declare a named port with a number past the limit (§7): narrow: it matches no more
// than it should; wide: no less.
type reading bool

const (
	narrow reading = false
	wide   reading = true
)

// applies is what a rule does with a packet that it matches; 0: it does not.
func (c *Cluster) applies(r *model.Rule, pkt model.Packet) model.Action {
	switch {
	case r.Action != model.Deny && c.matches(r, pkt, narrow):
		return r.Action
	case (r.Action == model.Deny || r.Action == model.Pass) && c.matches(r, pkt, wide):
		return model.Deny
	}
	return 0
}

// matches is §7: every field that is present must match, one entry of a list is enough.
func (c *Cluster) matches(r *model.Rule, pkt model.Packet, as reading) bool {
	if r.Unmatchable != "" {
		return false
	}
	v4 := pkt.Src.Is4()
	if r.IPVersion == 4 && !v4 || r.IPVersion == 6 && v4 {
		return false
	}
	if r.Protocol != nil && !isProtocol(*r.Protocol, pkt) {
		return false
	}
	if r.NotProtocol != nil && *r.NotProtocol == pkt.Protocol {
		return false
	}
	if r.ICMP != nil && !isICMP(*r.ICMP, pkt) {
		return false
	}
	if r.NotICMP != nil && isICMP(*r.NotICMP, pkt) {
		return false
	}
	return c.sideMatches(r.Protocol, r.Source, false, pkt, pkt.Src, pkt.SrcPort, as) &&
		c.sideMatches(r.Protocol, r.Destination, true, pkt, pkt.Dst, pkt.DstPort, as)
}

// isProtocol: protocol ICMP implies IPv4, ICMPv6 implies IPv6. (notProtocol implies no family, it is about the number.)
func isProtocol(p uint8, pkt model.Packet) bool {
	if p == model.ProtoICMP && !pkt.Src.Is4() || p == model.ProtoICMPv6 && pkt.Src.Is4() {
		return false
	}
	return p == pkt.Protocol
}

func isICMP(m model.ICMPMatch, pkt model.Packet) bool {
	carries := isProtocol(model.ProtoICMP, pkt) || isProtocol(model.ProtoICMPv6, pkt)
	return carries && m.Type == pkt.ICMPType && (m.Code == nil || *m.Code == pkt.ICMPCode)
}

func (c *Cluster) sideMatches(proto *uint8, s model.Entity, dst bool, pkt model.Packet, addr netip.Addr, port uint16, as reading) bool {
	if len(s.Nets) > 0 && !inNets(s.Nets, addr) {
		return false
	}
	if len(s.NotNets) > 0 && (lacksFamily(s.NotNets, addr) || inNets(s.NotNets, addr)) {
		return false
	}
	if s.Selector != nil && !c.selected(s.Selector, addr) {
		return false
	}
	if s.NotSelector != nil && c.selected(s.NotSelector, addr) {
		return false
	}
	if s.Nodes != nil && !c.isNode(s.Nodes, addr) {
		return false
	}
	if len(s.Ports)+len(s.NamedPorts) > 0 &&
		!inRanges(s.Ports, pkt, port) && !c.exposes(s.NamedPorts, proto, s.Selector, pkt, addr, port) &&
		!(as == wide && c.exposesPast(s.NamedPorts, proto, s.Selector, addr, func(protocol uint8) bool { return protocol == pkt.Protocol })) {
		return false
	}
	if inRanges(s.NotPorts, pkt, port) || c.exposes(s.NotNamedPorts, proto, s.Selector, pkt, addr, port) ||
		as == narrow && c.exposesPast(s.NotNamedPorts, proto, s.Selector, addr, func(uint8) bool { return true }) {
		return false
	}
	return s.Service == nil || c.backs(*s.Service, dst, pkt, addr, port)
}

func inNets(nets []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(nets, func(n netip.Prefix) bool { return n.Contains(addr) })
}

// lacksFamily is D-9: a list without an entry of the packet's family keeps the rule from matching that family.
func lacksFamily(nets []netip.Prefix, addr netip.Addr) bool {
	return !slices.ContainsFunc(nets, func(n netip.Prefix) bool { return n.Addr().Is4() == addr.Is4() })
}

func inRanges(ranges []model.PortRange, pkt model.Packet, port uint16) bool {
	return model.HasPorts(pkt.Protocol) &&
		slices.ContainsFunc(ranges, func(r model.PortRange) bool { return r.Lo <= port && port <= r.Hi })
}

// selected reports whether the selector selects an endpoint that has the address, or a network set that covers it.
func (c *Cluster) selected(sel *selector.Selector, addr netip.Addr) bool {
	for _, e := range c.endpoints {
		if c.has(e, addr) && sel.Matches(c.labels(e.Labels, e.Profiles)) {
			return true
		}
	}
	for _, n := range c.netsets {
		if inNets(n.Nets, addr) && sel.Matches(c.labels(n.Labels, n.Profiles)) {
			return true
		}
	}
	return false
}

// isNode reports whether a node that the selector selects by its own labels has the address.
func (c *Cluster) isNode(sel *selector.Selector, addr netip.Addr) bool {
	for _, n := range c.nodes {
		if slices.Contains(n.Addrs, addr) && sel.Matches(selector.Map(n.Labels)) {
			return true
		}
	}
	return false
}

// exposes reports whether an endpoint has the address and declares the packet's protocol and port under one of the
// names. It must be selected by the side's positive selector if there is one; the rule's protocol, if there is one,
// must be the port's.
func (c *Cluster) exposes(names []string, proto *uint8, sel *selector.Selector, pkt model.Packet, addr netip.Addr, port uint16) bool {
	if !model.HasPorts(pkt.Protocol) {
		return false
	}
	for _, e := range c.endpoints {
		if !c.has(e, addr) || sel != nil && !sel.Matches(c.labels(e.Labels, e.Profiles)) {
			continue
		}
		for _, p := range e.Ports {
			if slices.Contains(names, p.Name) && p.Protocol == pkt.Protocol && p.Port == port &&
				(proto == nil || *proto == p.Protocol) && !c.isPast(e, p, proto, sel) {
				return true
			}
		}
	}
	return false
}

// maxNumbers is how many numbers the pods of a namespace may give a name of ports.
const maxNumbers = 128

// exposesPast reports whether an endpoint has the address and declares a port under one of the names, of such a protocol,
// with a number past the limit.
func (c *Cluster) exposesPast(names []string, proto *uint8, sel *selector.Selector, addr netip.Addr, ofProtocol func(uint8) bool) bool {
	for _, e := range c.endpoints {
		if len(names) == 0 || !c.has(e, addr) || sel != nil && !sel.Matches(c.labels(e.Labels, e.Profiles)) {
			continue
		}
		for _, p := range e.Ports {
			if slices.Contains(names, p.Name) && model.HasPorts(p.Protocol) && ofProtocol(p.Protocol) &&
				(proto == nil || *proto == p.Protocol) && c.isPast(e, p, proto, sel) {
				return true
			}
		}
	}
	return false
}

// isPast reports whether maxNumbers lower numbers of the port's name are declared by pods of the endpoint's namespace that
// the rule means: those of lower protocols, then those that are lower.
func (c *Cluster) isPast(of endpoint, port model.NamedPort, proto *uint8, sel *selector.Selector) bool {
	namespace, ok := namespaceOf(of)
	lower := map[model.NamedPort]bool{}
	for _, e := range c.endpoints {
		other, _ := namespaceOf(e)
		if !ok || other != namespace || sel != nil && !sel.Matches(c.labels(e.Labels, e.Profiles)) ||
			!slices.ContainsFunc(e.Addrs, func(a netip.Addr) bool { return c.has(e, a) }) {
			continue
		}
		for _, p := range e.Ports {
			isLower := p.Protocol < port.Protocol || p.Protocol == port.Protocol && p.Port < port.Port
			if p.Name == port.Name && model.HasPorts(p.Protocol) && isLower && (proto == nil || *proto == p.Protocol) {
				lower[p] = true
			}
		}
	}
	return len(lower) >= maxNumbers
}

func namespaceOf(e endpoint) (namespace string, ok bool) {
	for _, name := range e.Profiles {
		if namespace, ok = model.NamespaceOfProfile(name); ok {
			return namespace, true
		}
	}
	return "", false
}

// backs reports whether the address is a backend of the Service; of a destination also whether the packet goes to one
// of the ports it backs.
func (c *Cluster) backs(svc model.ServiceKey, dst bool, pkt model.Packet, addr netip.Addr, port uint16) bool {
	for _, s := range c.slices {
		if s.Service != svc || !slices.Contains(s.Addrs, addr) {
			continue
		}
		if !dst || slices.ContainsFunc(s.Ports, func(p model.NamedPort) bool {
			return model.HasPorts(pkt.Protocol) && p.Protocol == pkt.Protocol && p.Port == port
		}) {
			return true
		}
	}
	return false
}

// labels are an object's own labels and those its profiles lend it.
func (c *Cluster) labels(own map[string]string, profiles []string) selector.Labels {
	return inherited{c, own, profiles}
}

type inherited struct {
	c        *Cluster
	own      map[string]string
	profiles []string
}

// Get implements selector.Labels: own labels first, then the first profile that has the label.
func (l inherited) Get(key string) (string, bool) {
	if v, ok := l.own[key]; ok {
		return v, true
	}
	for _, name := range l.profiles {
		if p := l.c.profiles[name]; p != nil {
			if v, ok := p.Labels[key]; ok {
				return v, true
			}
		}
	}
	return "", false
}
