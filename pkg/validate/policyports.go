package validate

import (
	"slices"

	"github.com/margay-project/margay/pkg/model"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// portGroup has the ports of one API rule that are of one protocol. Without numbers and names: every port.
type portGroup struct {
	protocol *uint8 // nil: any protocol, and no ports
	numbers  []model.PortRange
	names    []string
}

// groupPorts returns one group per protocol, by number.
func groupPorts(ports []networkingv1.NetworkPolicyPort) []portGroup {
	if len(ports) == 0 {
		return []portGroup{{}}
	}
	var groups []portGroup
	for _, proto := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} {
		if g, ok := portsOf(proto, ports); ok {
			groups = append(groups, g)
		}
	}
	return groups
}

// portsOf returns the group of one protocol, and false if no port has it.
func portsOf(proto corev1.Protocol, ports []networkingv1.NetworkPolicyPort) (portGroup, bool) {
	num, _ := protocolNumber(proto)
	g := portGroup{protocol: &num}
	found, every := false, false
	for _, p := range ports {
		if p.Protocol == nil && proto != corev1.ProtocolTCP || p.Protocol != nil && *p.Protocol != proto {
			continue
		}
		found = true
		switch {
		case p.Port == nil:
			every = true
		case p.Port.Type == intstr.String:
			g.names = append(g.names, p.Port.StrVal)
		case p.EndPort != nil:
			g.numbers = append(g.numbers, model.PortRange{Lo: uint16(p.Port.IntVal), Hi: uint16(*p.EndPort)})
		default:
			g.numbers = append(g.numbers, model.PortRange{Lo: uint16(p.Port.IntVal), Hi: uint16(p.Port.IntVal)})
		}
	}
	if every {
		return portGroup{protocol: &num}, true
	}
	slices.Sort(g.names)
	g.names = slices.Compact(g.names)
	g.numbers = MergePorts(g.numbers)
	return g, found
}

// MergePorts sorts ranges and joins those that touch. It reuses the slice.
func MergePorts(ranges []model.PortRange) []model.PortRange {
	slices.SortFunc(ranges, func(a, b model.PortRange) int { return int(a.Lo) - int(b.Lo) })
	merged := ranges[:0]
	for _, r := range ranges {
		if n := len(merged); n > 0 && int(r.Lo) <= int(merged[n-1].Hi)+1 {
			merged[n-1].Hi = max(merged[n-1].Hi, r.Hi)
		} else {
			merged = append(merged, r)
		}
	}
	return merged
}
