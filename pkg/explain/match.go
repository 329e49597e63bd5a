package explain

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// Sets answers which sets an address is in, and describes a set.
type Sets interface {
	SetContains(id model.SetID, addr netip.Addr) bool
	SetText(id model.SetID) (string, bool)
}

// mismatch is the first clause of r that the packet does not fit; nil: r matches (semantics §7).
func mismatch(r *model.MatchRule, p model.Packet, sets Sets) *Mismatch {
	if r.Unmatchable != "" {
		return Mismatch{Clause: ClauseNone}.describe("%s", r.Unmatchable)
	}
	family := uint8(4)
	if p.Src.Is6() {
		family = 6
	}
	if r.IPVersion != 0 && r.IPVersion != family {
		return Mismatch{Clause: ClauseIPVersion, Packet: fmt.Sprint(family), Rule: []string{fmt.Sprint(r.IPVersion)}}.describe("is for IPv%d", r.IPVersion)
	}
	if why := protocolMismatch(r, p, family); why != nil {
		return why
	}
	if why := icmpMismatch(r, p); why != nil {
		return why
	}
	if why := sideMismatch("source", &r.Source, p, p.Src, p.SrcPort, sets); why != nil {
		return why
	}
	return sideMismatch("destination", &r.Destination, p, p.Dst, p.DstPort, sets)
}

// protocolMismatch: protocol ICMP implies IPv4 and ICMPv6 IPv6; notProtocol is about the number alone.
func protocolMismatch(r *model.MatchRule, p model.Packet, family uint8) *Mismatch {
	m := Mismatch{Clause: ClauseProtocol, Packet: ProtocolName(p.Protocol)}
	if r.Protocol != nil {
		m.Rule = []string{ProtocolName(*r.Protocol)}
	}
	switch {
	case r.Protocol != nil && *r.Protocol != p.Protocol:
		return m.describe("protocol is not %s", ProtocolName(*r.Protocol))
	case r.Protocol != nil && (*r.Protocol == model.ProtoICMP && family != 4 || *r.Protocol == model.ProtoICMPv6 && family != 6):
		return m.describe("%s is not the ICMP of IPv%d", ProtocolName(*r.Protocol), family)
	case r.NotProtocol != nil && *r.NotProtocol == p.Protocol:
		m.Excluded, m.Rule = true, []string{m.Packet}
		return m.describe("protocol is %s, which is excluded", m.Packet)
	}
	return nil
}

// icmpMismatch: a type is that of ICMP on IPv4 and of ICMPv6 on IPv6.
func icmpMismatch(r *model.MatchRule, p model.Packet) *Mismatch {
	protocol := uint8(model.ProtoICMP)
	if p.Src.Is6() {
		protocol = model.ProtoICMPv6
	}
	is := func(m *model.ICMPMatch) bool {
		return p.Protocol == protocol && m.Type == p.ICMPType && (m.Code == nil || *m.Code == p.ICMPCode)
	}
	m := Mismatch{Clause: ClauseICMP, Packet: fmt.Sprintf("type %d code %d", p.ICMPType, p.ICMPCode)}
	if r.ICMP != nil && !is(r.ICMP) {
		m.Rule = []string{icmpText(r.ICMP)}
		if p.Protocol != protocol {
			m.Packet = ProtocolName(p.Protocol)
			return m.describe("protocol is %s, and the rule wants %s %s", m.Packet, ProtocolName(protocol), m.Rule[0])
		}
		return m.describe("%s %s is not %s", ProtocolName(protocol), m.Packet, m.Rule[0])
	}
	if r.NotICMP != nil && is(r.NotICMP) {
		m.Excluded, m.Rule = true, []string{icmpText(r.NotICMP)}
		return m.describe("%s %s is excluded by %s", ProtocolName(protocol), m.Packet, m.Rule[0])
	}
	return nil
}

func icmpText(m *model.ICMPMatch) string {
	if m.Code == nil {
		return fmt.Sprintf("type %d", m.Type)
	}
	return fmt.Sprintf("type %d code %d", m.Type, *m.Code)
}

func sideMismatch(name string, s *model.Side, p model.Packet, addr netip.Addr, port uint16, sets Sets) *Mismatch {
	m := Mismatch{Clause: ClauseMembers, Side: name, Packet: addr.String()}
	for _, id := range s.In {
		if !sets.SetContains(id, addr) {
			m.Rule = []string{setText(id, sets)}
			return m.describe("%s %s is not in {%s}", name, addr, m.Rule[0])
		}
	}
	for _, id := range s.NotIn {
		if sets.SetContains(id, addr) {
			m.Excluded, m.Rule = true, []string{setText(id, sets)}
			return m.describe("%s %s is in {%s}, which is excluded", name, addr, m.Rule[0])
		}
	}
	if why := netsMismatch(name, s, addr); why != nil {
		return why
	}
	return portsMismatch(name, s, p, addr, port, sets)
}

// netsMismatch reads CIDR lists as D-9 does: a list without an entry of the packet's family matches nothing of it.
func netsMismatch(name string, s *model.Side, addr netip.Addr) *Mismatch {
	ofFamily := func(n netip.Prefix) bool { return n.Addr().Is4() == addr.Is4() }
	contains := func(n netip.Prefix) bool { return n.Contains(addr) }
	m := Mismatch{Clause: ClauseNetworks, Side: name, Packet: addr.String()}
	if len(s.Nets) > 0 && !slices.ContainsFunc(s.Nets, contains) {
		m.Rule = netTexts(s.Nets)
		return m.describe("%s %s is not in %s", name, addr, shortened(m.Rule))
	}
	m.Excluded, m.Rule = true, netTexts(s.NotNets)
	if len(s.NotNets) > 0 && !slices.ContainsFunc(s.NotNets, ofFamily) {
		return m.describe("%s excludes only networks of the other family, so the rule is not for this one", name)
	}
	if i := slices.IndexFunc(s.NotNets, contains); i >= 0 {
		m.Rule = m.Rule[i : i+1]
		return m.describe("%s %s is in %s, which is excluded", name, addr, s.NotNets[i])
	}
	return nil
}

func portMatches(m *model.PortMatch, p model.Packet, addr netip.Addr, port uint16, sets Sets) bool {
	if !model.HasPorts(p.Protocol) {
		return false
	}
	for _, r := range m.Ranges {
		if r.Contains(port) {
			return true
		}
	}
	for _, n := range m.Named {
		if n.Protocol == p.Protocol && n.Port == port && sets.SetContains(n.Set, addr) {
			return true
		}
	}
	return false
}

func portsMismatch(name string, s *model.Side, p model.Packet, addr netip.Addr, port uint16, sets Sets) *Mismatch {
	m := Mismatch{Clause: ClausePorts, Side: name}
	if model.HasPorts(p.Protocol) {
		m.Packet = fmt.Sprintf("%d/%s", port, ProtocolName(p.Protocol))
	}
	if s.Ports != nil && !portMatches(s.Ports, p, addr, port, sets) {
		m.Rule = portTexts(s.Ports, sets)
		switch {
		case len(s.Ports.Ranges)+len(s.Ports.Named) == 0:
			return m.describe("the %s is given by the name of a port or Service, and no pod or backend that it could mean has such a port", name)
		case !model.HasPorts(p.Protocol):
			return m.describe("%s has no ports, and the rule wants %s port %s", ProtocolName(p.Protocol), name, shortened(m.Rule))
		case len(s.Ports.Named) > 0:
			return m.describe("%s %s port %d/%s is not among %s", name, addr, port, ProtocolName(p.Protocol), shortened(m.Rule))
		}
		return m.describe("%s port %d is not among %s", name, port, shortened(m.Rule))
	}
	if s.NotPorts != nil && portMatches(s.NotPorts, p, addr, port, sets) {
		m.Excluded, m.Rule = true, portTexts(s.NotPorts, sets)
		return m.describe("%s port %d is excluded by %s", name, port, shortened(m.Rule))
	}
	return nil
}
