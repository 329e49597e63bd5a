package oracle

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/margay-project/margay/pkg/model"
)

// ruleMatches: all that a rule of a policy of the namespace says must hold (semantics §7).
func (o *Objects) ruleMatches(namespace string, r *RuleObject, pkt model.Packet) bool {
	version := 6
	if pkt.Src.Is4() {
		version = 4
	}
	switch {
	case r.HTTP != nil,
		r.IPVersion != 0 && r.IPVersion != version,
		r.Protocol != nil && !packetIs(protocolOf(*r.Protocol), pkt),
		r.NotProtocol != nil && protocolOf(*r.NotProtocol) == int(pkt.Protocol),
		r.ICMP != nil && !r.ICMP.matches(pkt),
		r.NotICMP != nil && r.NotICMP.matches(pkt):
		return false
	}
	protocol := 0
	if r.Protocol != nil {
		protocol = protocolOf(*r.Protocol)
	}
	source := end{namespace, protocol, pkt, pkt.Src, pkt.SrcPort, false, r.Action == "Deny"}
	destination := end{namespace, protocol, pkt, pkt.Dst, pkt.DstPort, true, r.Action == "Deny"}
	return o.sideHolds(&r.Source, source) && o.sideHolds(&r.Destination, destination)
}

func protocolOf(p intstr.IntOrString) int {
	if p.Type == intstr.Int {
		return int(p.IntVal)
	}
	if n, err := strconv.Atoi(p.StrVal); err == nil {
		return n
	}
	return map[string]int{"tcp": 6, "udp": 17, "sctp": 132, "udplite": 136, "icmp": 1, "icmpv6": 58}[strings.ToLower(p.StrVal)]
}

// packetIs: ICMP is a protocol of IPv4, ICMPv6 of IPv6.
func packetIs(protocol int, pkt model.Packet) bool {
	switch protocol {
	case 1:
		return pkt.Protocol == 1 && pkt.Src.Is4()
	case 58:
		return pkt.Protocol == 58 && !pkt.Src.Is4()
	}
	return protocol == int(pkt.Protocol)
}

func (m *ICMPObject) matches(pkt model.Packet) bool {
	return (packetIs(1, pkt) || packetIs(58, pkt)) && m.Type == pkt.ICMPType && (m.Code == nil || *m.Code == pkt.ICMPCode)
}

// end is one end of a packet, as a rule of a policy of a namespace sees it. Protocol is the rule's; 0: it names none.
type end struct {
	namespace   string
	protocol    int
	packet      model.Packet
	addr        netip.Addr
	port        uint16
	destination bool
	denies      bool // the rule's action
}

func (o *Objects) sideHolds(s *SideObject, e end) bool {
	if !netsHold(s, e.addr) || s.Services != nil && !o.serviceHolds(s.Services, e) {
		return false
	}
	things := o.thingsAt(e.addr)
	positive := s.isPositive(e.namespace)
	meant := func(t thing) bool {
		return s.means(e.namespace, &t) && (e.denies || !s.guesses(&t)) && (s.NotSelector == "" || !holds(s.NotSelector, t.labels))
	}
	switch {
	case positive && !slices.ContainsFunc(things, meant):
		return false
	case !positive && s.NotSelector != "" && slices.ContainsFunc(things, func(t thing) bool { return holds(s.NotSelector, t.labels) }):
		return false
	}
	counted := slices.DeleteFunc(things, func(t thing) bool { return !t.endpoint || positive && !meant(t) })
	if len(s.Ports) > 0 && !portsHold(s.Ports, counted, e) {
		return false
	}
	return len(s.NotPorts) == 0 || !portsHold(s.NotPorts, counted, e)
}

// isPositive reports whether the side says of what its address must be.
func (s *SideObject) isPositive(namespace string) bool {
	accounts := s.ServiceAccounts != nil && (len(s.ServiceAccounts.Names) > 0 || s.ServiceAccounts.Selector != "")
	return s.Selector != "" || s.NamespaceSelector != "" || accounts || namespace != "" && s.NotSelector != ""
}

// means reports whether the side's positive conditions hold of something.
func (s *SideObject) means(namespace string, t *thing) bool {
	switch {
	case s.NamespaceSelector == "":
		if namespace != "" && t.namespace != namespace {
			return false
		}
	case strings.TrimSpace(s.NamespaceSelector) == "global()":
		if t.namespace != "" {
			return false
		}
	default:
		if !t.inNamespace(s.NamespaceSelector) {
			return false
		}
	}
	if a := s.ServiceAccounts; a != nil {
		if len(a.Names) > 0 && !slices.Contains(a.Names, t.account) || !t.hasAccount(a.Selector) {
			return false
		}
	}
	return s.Selector == "" || holds(s.Selector, t.labels)
}

// guesses reports whether the side's selector of namespaces would be about labels that are not known.
func (s *SideObject) guesses(t *thing) bool {
	selector := strings.TrimSpace(s.NamespaceSelector)
	return selector != "" && selector != "all()" && selector != "global()" && t.labels["projectcalico.org/orchestrator"] == "k8s" && t.namespaceLabels["projectcalico.org/name"] == ""
}

// inNamespace reports whether a selector of namespaces holds of what the thing inherits from its own.
func (t *thing) inNamespace(selector string) bool {
	return holdsOf(selector, t.namespaceLabels, t.namespace != "")
}

// hasAccount reports whether a selector of service accounts holds of what the thing inherits from its own.
func (t *thing) hasAccount(selector string) bool {
	return holdsOf(selector, t.accountLabels, t.account != "")
}

// netsHold: a list that is there and has no entry of the family matches nothing of it, negated or not (D-9).
func netsHold(s *SideObject, addr netip.Addr) bool {
	within := func(nets []string) bool {
		return slices.ContainsFunc(nets, func(n string) bool { return prefixOf(n).Contains(addr) })
	}
	ofFamily := func(n string) bool { return prefixOf(n).Addr().Is4() == addr.Is4() }
	return (len(s.Nets) == 0 || within(s.Nets)) &&
		(len(s.NotNets) == 0 || slices.ContainsFunc(s.NotNets, ofFamily) && !within(s.NotNets))
}

// portsHold: the packet's port at this end is one of the numbers, or one that an endpoint declares under one of the names.
func portsHold(ports []intstr.IntOrString, endpoints []thing, e end) bool {
	if e.packet.Protocol != 6 && e.packet.Protocol != 17 && e.packet.Protocol != 132 {
		return false
	}
	return slices.ContainsFunc(ports, func(p intstr.IntOrString) bool {
		if p.Type == intstr.Int {
			return p.IntVal == int32(e.port)
		}
		low, high, isRange := strings.Cut(p.StrVal, ":")
		if !isRange {
			high = low
		}
		from, err := strconv.Atoi(low)
		to, err2 := strconv.Atoi(high)
		if err == nil && err2 == nil {
			return from <= int(e.port) && int(e.port) <= to
		}
		return slices.ContainsFunc(endpoints, func(t thing) bool { return t.declares(p.StrVal, e) })
	})
}

// declares reports whether the thing gives the end's port the name.
func (t *thing) declares(name string, e end) bool {
	return slices.ContainsFunc(t.ports, func(p port) bool {
		return p.name == name && p.protocol == int(e.packet.Protocol) && p.number == int32(e.port) && (e.protocol == 0 || e.protocol == p.protocol)
	})
}

// serviceHolds: as a destination, address and port of an endpoint of the Service; as a source, the address.
func (o *Objects) serviceHolds(s *ServiceObject, e end) bool {
	namespace := s.Namespace
	if namespace == "" {
		namespace = e.namespace
	}
	return slices.ContainsFunc(o.Slices, func(slice *discoveryv1.EndpointSlice) bool {
		if slice.Namespace != namespace || slice.Labels[discoveryv1.LabelServiceName] != s.Name {
			return false
		}
		there := slices.ContainsFunc(slice.Endpoints, func(ep discoveryv1.Endpoint) bool {
			return slices.ContainsFunc(ep.Addresses, func(a string) bool { return prefixOf(a).Contains(e.addr) })
		})
		return there && (!e.destination || slices.ContainsFunc(slice.Ports, func(p discoveryv1.EndpointPort) bool {
			protocol := corev1.ProtocolTCP
			if p.Protocol != nil {
				protocol = *p.Protocol
			}
			return p.Port != nil && *p.Port == int32(e.port) && protocolNumber(protocol) == e.packet.Protocol
		}))
	})
}

func inherit(labels map[string]string, prefix string, from map[string]string) {
	for k, v := range from {
		labels[prefix+k] = v
	}
}

func accountName(pod *corev1.Pod) string {
	return cmp.Or(pod.Spec.ServiceAccountName, pod.Spec.DeprecatedServiceAccount, "default")
}

// namespaceLabels are none of a namespace that is not known, and of "".
func (o *Objects) namespaceLabels(name string) map[string]string {
	labels := map[string]string{}
	for _, n := range o.Namespaces {
		if n.Name != name {
			continue
		}
		maps.Copy(labels, n.Labels)
		labels["kubernetes.io/metadata.name"] = name
		labels["projectcalico.org/name"] = name
	}
	return labels
}

// accountLabels are none of a service account that is not known.
func (o *Objects) accountLabels(namespace, name string) map[string]string {
	labels := map[string]string{}
	for _, a := range o.ServiceAccounts {
		if a.Namespace != namespace || a.Name != name {
			continue
		}
		maps.Copy(labels, a.Labels)
		labels["projectcalico.org/name"] = a.Name
	}
	return labels
}
