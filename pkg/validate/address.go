package validate

import (
	"net/netip"

	"github.com/margay-project/margay/pkg/model"
	corev1 "k8s.io/api/core/v1"
)

// ParseAddr reads one address, unmapped. Addresses with a zone belong to one machine and are no addresses here.
func ParseAddr(text string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" {
		return netip.Addr{}, false
	}
	return a.Unmap(), true
}

// addAddr adds the address in text unless it is there already. One that cannot be read is reported and left out.
func (r *Report) addAddr(addrs *distinct[netip.Addr], path, text string) {
	a, ok := ParseAddr(text)
	if !ok {
		r.Add(Warning, path, "%q is not an IP address; ignored", text)
		return
	}
	addrs.add(a)
}

// maxPodAddrs is more than a kubelet reports of any pod. Annotations hold thousands, each of which every node would have to
// find an owner for.
const maxPodAddrs = 64

// addPodAddr is addAddr for addresses that pods say are theirs. One that no pod can own (D-19) is reported and
// left out.
func (r *Report) addPodAddr(addrs *distinct[netip.Addr], path, text string) {
	if a, ok := ParseAddr(text); ok {
		if what := model.UnownableReason(a); what != "" {
			r.Add(Warning, path, "%s is %s, which no pod can own; ignored", a, what)
			return
		}
		if len(addrs.list) >= maxPodAddrs {
			r.Add(Warning, path, "a pod has at most %d addresses; further ones are ignored", maxPodAddrs)
			return
		}
	}
	r.addAddr(addrs, path, text)
}

// protocolNumber returns the number of a protocol that Kubernetes names, TCP if the name is empty.
func protocolNumber(p corev1.Protocol) (uint8, bool) {
	switch p {
	case "", corev1.ProtocolTCP:
		return model.ProtoTCP, true
	case corev1.ProtocolUDP:
		return model.ProtoUDP, true
	case corev1.ProtocolSCTP:
		return model.ProtoSCTP, true
	}
	return 0, false
}

// addPort adds a named port unless it is there already. One that cannot exist is reported and left out.
func (r *Report) addPort(ports *distinct[model.NamedPort], path, name string, proto corev1.Protocol, port int32) {
	num, ok := protocolNumber(proto)
	switch {
	case !ok:
		r.Add(Warning, path, "protocol %q is not TCP, UDP or SCTP; ignored", proto)
		return
	case port < 1 || port > 65535:
		r.Add(Warning, path, "port %d is not in 1-65535; ignored", port)
		return
	}
	ports.add(model.NamedPort{Name: name, Protocol: num, Port: uint16(port)})
}
