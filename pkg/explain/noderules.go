package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/model"
)

// NodeRules are what a node does to packets of its pods besides policy (semantics §15), as it is configured.
type NodeRules struct {
	Node        string   // whose rules these are; those of other nodes are not known
	DropToHost  bool     // packets of pods that reach the node's own input
	AllowEncap  bool     // tunnels are judged as other traffic
	TunnelPorts []uint16 // UDP ports of tunnels
}

// defaultTunnelPorts are the UDP ports of tunnels on nodes that are not configured otherwise.
var defaultTunnelPorts = []uint16{4789, 6081, 8472}

// of are the rules for packets of an end; not known, and then the defaults, if it is no pod of the node.
func (r NodeRules) of(src End) (rules NodeRules, known bool) {
	if r.Node != "" && src.IsPod() && src.Node == r.Node {
		return r, true
	}
	return NodeRules{TunnelPorts: defaultTunnelPorts}, false
}

// beside says what the node of a pod does to a packet of the pod besides policy. dropped: it certainly drops the packet, for the reason
// in text. Otherwise text is what may stop it; empty: nothing. anyPort: the packet stands for those to other ports, too, and what may stop
// only some of them is left to tunnels and nodePorts.
func (r NodeRules) beside(src, dst End, p model.Packet, anyPort bool) (text string, dropped bool) {
	rules, known := r.of(src)
	toHost := dst.Node != "" && dst.Node == src.Node || dst.Addr.IsMulticast() || dst.Addr == broadcast || dst.Addr.Is6() && dst.Addr.IsLinkLocalUnicast()
	switch tunnel := rules.tunnel(p); {
	case tunnel != "" && known && anyPort:
		return "the node drops tunnels from pods before policy (drop reason encap); with --allow-encap-from-workloads policy judges them", true
	case tunnel != "" && known:
		return "the node drops tunnels from pods before policy (drop reason encap), and " + tunnel + "; with --allow-encap-from-workloads policy judges it", true
	case tunnel != "" && !anyPort:
		return "the node drops tunnels from pods before policy, unless it runs with --allow-encap-from-workloads", false
	case dst.Node != "" && !dst.IsPod() && isNodePort(p) && !anyPort:
		return rules.nodePort(p, toHost), false
	case known && rules.DropToHost && toHost && !dst.IsPod():
		return "the node drops what its pods send to it (drop reason host_action): --default-endpoint-to-host-action is Drop", true
	case dst.Addr.Is6() && dst.Addr.IsLinkLocalUnicast() && dst.Node == "" && !dst.IsPod():
		return "a pod is alone on its link: its node drops packets to link-local addresses that are not the node's (drop reason no_endpoint)", false
	}
	return "", false
}

// nodePort says what becomes of a packet to a port of a node that may be a Service's. own: it is the pod's own node.
func (r NodeRules) nodePort(p model.Packet, own bool) string {
	text := fmt.Sprintf("if %d is the NodePort of a Service, policy judges the backend, mostly with the node's address as the source: ask about svc/NAME", p.DstPort)
	if r.DropToHost && own {
		text += "; otherwise the node drops it (drop reason host_action)"
	}
	return text
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// tunnelProtocols are the protocols of tunnels: IP-in-IP, IPv6 in IP, GRE.
var tunnelProtocols = []uint8{4, 41, 47}

// tunnel says in which way the packet is one of a tunnel that the node drops; empty: it is none.
func (r NodeRules) tunnel(p model.Packet) string {
	switch {
	case r.AllowEncap:
	case slices.Contains(tunnelProtocols, p.Protocol):
		return fmt.Sprintf("protocol %d is one", p.Protocol)
	case p.Protocol == model.ProtoUDP && slices.Contains(r.TunnelPorts, p.DstPort):
		return fmt.Sprintf("UDP port %d is one's", p.DstPort)
	}
	return ""
}

// tunnels says which tunnels that policy allows the node of a pod drops, or may drop: those of protocols, and those to a port in the list
// that the list does not deny. Empty: none.
func (r NodeRules) tunnels(src End, protocols []string, list []PortVerdict) string {
	rules, known := r.of(src)
	var which, ports []string
	if len(protocols) > 0 {
		which = append(which, "protocol "+strings.Join(protocols, ", "))
	}
	for _, port := range rules.TunnelPorts {
		if slices.ContainsFunc(list, func(p PortVerdict) bool {
			return p.Protocol == "udp" && p.Verdict == VerdictAllow && p.From <= port && port <= p.To
		}) {
			ports = append(ports, fmt.Sprint(port))
		}
	}
	if len(ports) > 0 {
		which = append(which, "UDP to port "+strings.Join(ports, ", "))
	}
	switch {
	case rules.AllowEncap || len(which) == 0:
		return ""
	case known:
		return "the node drops tunnels from pods before policy (drop reason encap): " + strings.Join(which, ", and ")
	}
	return "the node drops tunnels from pods before policy, unless it runs with --allow-encap-from-workloads: " + strings.Join(which, ", and ")
}

// nodePorts says that ports in the list that no side denies may be those of a Service on a node; empty: there are none.
func nodePorts(dst End, list []PortVerdict) string {
	mayBe := func(p PortVerdict) bool {
		return p.From <= lastNodePort && p.To >= firstNodePort && (p.Verdict == VerdictAllow || p.Caveat != "")
	}
	if dst.IsPod() || dst.Node == "" || !slices.ContainsFunc(list, mayBe) {
		return ""
	}
	return fmt.Sprintf("of a port from %d to %d that is the NodePort of a Service policy judges the backend: ask about svc/NAME", firstNodePort, lastNodePort)
}

// toOwnNode is the note on a packet of a pod to its own node, which no ingress policy judges.
func (r NodeRules) toOwnNode(src End) string {
	const what = "the destination is the pod's own node: "
	switch rules, known := r.of(src); {
	case !known:
		return what + "after egress policy only --default-endpoint-to-host-action decides"
	case rules.DropToHost:
		return what + "no ingress policy is asked"
	}
	return what + "after egress policy only the node's own firewall decides"
}

// isDiscovery reports whether a packet of a pod is listener or neighbour discovery, or a router solicitation, on its link: a pod
// may always send those (semantics §15).
func isDiscovery(p model.Packet) bool {
	discovery := p.ICMPType >= 130 && p.ICMPType <= 133 || p.ICMPType == 135 || p.ICMPType == 136 || p.ICMPType == 143
	return p.Protocol == model.ProtoICMPv6 && discovery && (p.Dst.IsLinkLocalUnicast() || p.Dst.IsLinkLocalMulticast())
}
