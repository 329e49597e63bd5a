package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/model"
)

// Sets answers which sets an address is in, and what a set is.
type Sets interface {
	SetContains(id model.SetID, addr netip.Addr) bool
	SetText(id model.SetID) (string, bool)
}

// mismatch is the first clause of r that the packet does not fit, in words; empty: r matches (semantics §7).
func mismatch(r *model.MatchRule, p model.Packet, sets Sets) string {
	if r.Unmatchable != "" {
		return r.Unmatchable
	}
	family := uint8(4)
	if p.Src.Is6() {
		family = 6
	}
	if r.IPVersion != 0 && r.IPVersion != family {
		return fmt.Sprintf("is for IPv%d", r.IPVersion)
	}
	if why := protocolMismatch(r, p, family); why != "" {
		return why
	}
	if why := icmpMismatch(r, p); why != "" {
		return why
	}
	if why := sideMismatch("source", &r.Source, p, p.Src, p.SrcPort, sets); why != "" {
		return why
	}
	return sideMismatch("destination", &r.Destination, p, p.Dst, p.DstPort, sets)
}

// protocolMismatch: protocol ICMP implies IPv4 and ICMPv6 IPv6; notProtocol is about the number alone.
func protocolMismatch(r *model.MatchRule, p model.Packet, family uint8) string {
	switch {
	case r.Protocol != nil && *r.Protocol != p.Protocol:
		return "protocol is not " + ProtocolName(*r.Protocol)
	case r.Protocol != nil && (*r.Protocol == model.ProtoICMP && family != 4 || *r.Protocol == model.ProtoICMPv6 && family != 6):
		return fmt.Sprintf("%s is not the ICMP of IPv%d", ProtocolName(*r.Protocol), family)
	case r.NotProtocol != nil && *r.NotProtocol == p.Protocol:
		return "protocol is " + ProtocolName(p.Protocol) + ", which is excluded"
	}
	return ""
}

func icmpMismatch(r *model.MatchRule, p model.Packet) string {
	is := func(m *model.ICMPMatch) bool {
		proto := model.ProtoICMP
		if p.Src.Is6() {
			proto = model.ProtoICMPv6
		}
		return p.Protocol == proto && m.Type == p.ICMPType && (m.Code == nil || *m.Code == p.ICMPCode)
	}
	if r.ICMP != nil && !is(r.ICMP) {
		return "ICMP type or code differs"
	}
	if r.NotICMP != nil && is(r.NotICMP) {
		return "ICMP type and code are excluded"
	}
	return ""
}

func sideMismatch(name string, s *model.Side, p model.Packet, addr netip.Addr, port uint16, sets Sets) string {
	for _, id := range s.In {
		if !sets.SetContains(id, addr) {
			return fmt.Sprintf("%s %s is not in {%s}", name, addr, setText(id, sets))
		}
	}
	for _, id := range s.NotIn {
		if sets.SetContains(id, addr) {
			return fmt.Sprintf("%s %s is in {%s}, which is excluded", name, addr, setText(id, sets))
		}
	}
	if why := netsMismatch(name, s, addr); why != "" {
		return why
	}
	return portsMismatch(name, s, p, addr, port, sets)
}

// netsMismatch reads CIDR lists as D-9 does: a list without an entry of the packet's family matches nothing of it.
func netsMismatch(name string, s *model.Side, addr netip.Addr) string {
	ofFamily := func(n netip.Prefix) bool { return n.Addr().Is4() == addr.Is4() }
	contains := func(n netip.Prefix) bool { return n.Contains(addr) }
	if len(s.Nets) > 0 && !slices.ContainsFunc(s.Nets, contains) {
		return fmt.Sprintf("%s %s is not in %s", name, addr, netsText(s.Nets))
	}
	if len(s.NotNets) > 0 && !slices.ContainsFunc(s.NotNets, ofFamily) {
		return fmt.Sprintf("%s excludes only networks of the other family, so the rule is not for this one", name)
	}
	if i := slices.IndexFunc(s.NotNets, contains); i >= 0 {
		return fmt.Sprintf("%s %s is in %s, which is excluded", name, addr, s.NotNets[i])
	}
	return ""
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

func portsMismatch(name string, s *model.Side, p model.Packet, addr netip.Addr, port uint16, sets Sets) string {
	if s.Ports != nil && !portMatches(s.Ports, p, addr, port, sets) {
		switch {
		case len(s.Ports.Ranges)+len(s.Ports.Named) == 0:
			return fmt.Sprintf("the %s port is given by name, and no pod it could mean has a port of that name", name)
		case !model.HasPorts(p.Protocol):
			return fmt.Sprintf("%s has no ports, and the rule wants %s port %s", ProtocolName(p.Protocol), name, portsText(s.Ports, sets))
		case len(s.Ports.Named) > 0:
			return fmt.Sprintf("%s %s port %d/%s is not among %s", name, addr, port, ProtocolName(p.Protocol), portsText(s.Ports, sets))
		}
		return fmt.Sprintf("%s port %d is not among %s", name, port, portsText(s.Ports, sets))
	}
	if s.NotPorts != nil && portMatches(s.NotPorts, p, addr, port, sets) {
		return fmt.Sprintf("%s port %d is excluded by %s", name, port, portsText(s.NotPorts, sets))
	}
	return ""
}

// most is how many entries of a list a reason names.
const most = 6

func portsText(m *model.PortMatch, sets Sets) string {
	var parts []string
	for _, r := range m.Ranges {
		if r.Lo == r.Hi {
			parts = append(parts, fmt.Sprint(r.Lo))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", r.Lo, r.Hi))
		}
	}
	for _, n := range m.Named {
		parts = append(parts, fmt.Sprintf("%d/%s of {%s}", n.Port, ProtocolName(n.Protocol), setText(n.Set, sets)))
	}
	return shortened(parts)
}

func netsText(nets []netip.Prefix) string {
	var parts []string
	for _, n := range nets {
		parts = append(parts, n.String())
	}
	return shortened(parts)
}

func shortened(parts []string) string {
	if len(parts) > most {
		parts = append(parts[:most:most], fmt.Sprintf("%d more", len(parts)-most))
	}
	return strings.Join(parts, ", ")
}

func setText(id model.SetID, sets Sets) string {
	if t, ok := sets.SetText(id); ok {
		return t
	}
	return string(id)
}

// ProtocolName is the name policy has for an IP protocol, in lower case, or its number.
func ProtocolName(p uint8) string { return model.ProtocolName(p) }
