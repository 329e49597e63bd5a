package explain

import (
	"fmt"
	"net/netip"

	"github.com/margay-project/margay/pkg/model"
)

// nodeInPlaceOf is the address that a backend may see instead of that of a client outside of the cluster: kube-proxy puts its node's
// there, unless externalTrafficPolicy is Local (semantics §15). Which node it is depends on the client; that of the backend is an example.
// Zero: the backend sees the client, or its node has no address that is known.
func (l lookup) nodeInPlaceOf(src, dst End, translated bool) netip.Addr {
	if !translated || src.IsPod() || src.Node != "" || !dst.IsPod() {
		return netip.Addr{}
	}
	addrs, _ := l.graph.NodeAddrs(dst.Node)
	for _, a := range addrs {
		if a.Is4() == dst.Addr.Is4() {
			return a
		}
	}
	return netip.Addr{}
}

// byNode says what the backend's ingress policy makes of a packet whose source kube-proxy has replaced; empty: the same.
func byNode(f flow, j Judge, p model.Packet, direct *Side) (string, error) {
	client := p.Src
	p.Src = f.byNode
	s, err := j.Side(f.dst, model.Ingress, p)
	if err != nil || s.Verdict == direct.Verdict {
		return "", err
	}
	return fmt.Sprintf("through a Service the pod sees the address of a node instead of %s, unless its externalTrafficPolicy is Local: from %s the answer is %s",
		client, f.byNode, s), nil
}

// The range that Kubernetes gives NodePorts of, unless it is configured otherwise.
const firstNodePort, lastNodePort = 30000, 32767

// isNodePort reports whether a port is in that range.
func isNodePort(p model.Packet) bool {
	return model.HasPorts(p.Protocol) && p.DstPort >= firstNodePort && p.DstPort <= lastNodePort
}
