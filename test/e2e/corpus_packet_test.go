package e2e

import (
	"net/netip"
	"testing"

	"github.com/margay-project/margay/internal/corpus"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/model"
)

// itself are the addresses through which pods reach themselves by way of a Service.
var itself = map[bool]netip.Addr{false: netip.MustParseAddr("10.96.0.9"), true: netip.MustParseAddr("fd96::9")}

// try makes all checks' packets real and demands that those get through that want says.
func (s *stage) try(t *testing.T, checks []corpus.Check, want func(corpus.Check) bool) {
	t.Helper()
	for _, err := range s.traffic.Try(checks, want) {
		t.Error(err)
	}
}

// host is the machine that has the address.
func (s *stage) host(a netip.Addr, id *model.EndpointID) *lab.Host {
	if id != nil {
		return s.pods[*id].Host
	}
	for name, addrs := range nodeAddrs {
		for _, own := range addrs {
			if own == a {
				return s.nodes[name].Host
			}
		}
	}
	return s.world.Host
}

// toItself makes the pod reach itself by way of its node, which gives the packet back.
func (s *stage) toItself(c corpus.Check) (at netip.AddrPort, ok bool, err error) {
	if c.SrcEndpoint == nil || c.DstEndpoint == nil || *c.SrcEndpoint != *c.DstEndpoint {
		return netip.AddrPort{}, false, nil
	}
	protocol := "tcp"
	if c.Packet.Protocol == model.ProtoUDP {
		protocol = "udp"
	}
	vip := netip.AddrPortFrom(itself[c.Packet.Dst.Is6()], c.Packet.DstPort)
	return vip, true, s.pods[*c.SrcEndpoint].Node().SetService(lab.Service{
		Addr: vip, Protocol: protocol, Backends: []netip.AddrPort{netip.AddrPortFrom(c.Packet.Dst, c.Packet.DstPort)},
	})
}

// nodePort is one of a node, or of the destination's own that keeps the source.
type nodePort struct {
	node, protocol string
	local          bool
	to             netip.AddrPort
}

// byNodePort makes a node send what comes to a port of its own to the check's destination, from its own address unless it keeps the source.
func (s *stage) byNodePort(c corpus.Check) (at netip.AddrPort, err error) {
	k := nodePort{c.Masquerade, "tcp", c.Masquerade == "", netip.AddrPortFrom(c.Packet.Dst, c.Packet.DstPort)}
	if c.Packet.Protocol == model.ProtoUDP {
		k.protocol = "udp"
	}
	if k.local {
		k.node = s.pods[*c.DstEndpoint].Node().Name()
	}
	if s.nodePorts[k] == 0 {
		s.nodePorts[k] = uint16(30_000 + len(s.nodePorts))
	}
	n := s.nodes[k.node]
	at = netip.AddrPortFrom(n.Addr(k.to.Addr().Is6()), s.nodePorts[k])
	return at, n.SetService(lab.Service{Addr: at, Protocol: k.protocol, Backends: []netip.AddrPort{k.to}, Local: k.local})
}
