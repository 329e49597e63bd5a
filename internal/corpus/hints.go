package corpus

import (
	"net/netip"
	"slices"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/internal/oracle"
	"github.com/margay-project/margay/pkg/model"
)

// hints are what the objects of a cluster speak of, and what lies just beside it: packets made of it are more likely
// to tell engines apart than others.
type hints struct {
	cluster   *oracle.Cluster
	endpoints map[model.EndpointID]*model.Endpoint
	addrs     []netip.Addr
	ports     []uint16
	packets   []model.Packet // without addresses; ICMP fields whatever the family
}

func collectHints(updates []model.Update) *hints {
	h := &hints{
		cluster:   oracle.New(updates),
		endpoints: map[model.EndpointID]*model.Endpoint{},
		addrs:     slices.Clone(outside),
		ports:     slices.Clone(numbers),
		packets:   []model.Packet{{Protocol: model.ProtoTCP, SrcPort: 40000, DstPort: 80}},
	}
	for _, u := range updates {
		switch u := u.(type) {
		case model.EndpointUpdate:
			if u.Endpoint != nil {
				h.endpoints[u.ID] = u.Endpoint
				h.endpoint(u.Endpoint)
			}
		case model.NodeUpdate:
			h.addrs = append(h.addrs, u.Node.Addrs...)
		case model.NetworkSetUpdate:
			h.nets(u.Set.Nets)
		case model.EndpointSliceUpdate:
			h.addrs = append(h.addrs, u.Slice.Addrs...)
			h.namedPorts(u.Slice.Ports)
		case model.PolicyUpdate:
			h.rules(u.Policy.Ingress)
			h.rules(u.Policy.Egress)
		case model.ProfileUpdate:
			h.rules(u.Profile.Ingress)
			h.rules(u.Profile.Egress)
		}
	}
	return h
}

// own are those of an endpoint's addresses that it has.
func (h *hints) own(id model.EndpointID) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(h.endpoints[id].Addrs), func(a netip.Addr) bool { return !h.cluster.Owns(id, a) })
}

func (h *hints) endpoint(e *model.Endpoint) {
	for _, a := range e.Addrs {
		h.addrs = append(h.addrs, a, a.Next(), a) // twice: members are more interesting than strangers
	}
	h.namedPorts(e.Ports)
}

func (h *hints) namedPorts(ports []model.NamedPort) {
	for _, p := range ports {
		h.ports = append(h.ports, p.Port)
		h.packets = append(h.packets,
			model.Packet{Protocol: p.Protocol, SrcPort: 40000, DstPort: p.Port},
			model.Packet{Protocol: p.Protocol, SrcPort: p.Port, DstPort: p.Port})
	}
}

func (h *hints) nets(nets []netip.Prefix) {
	for _, n := range nets {
		first, last := n.Addr(), lastOf(n)
		for _, a := range []netip.Addr{first, first.Prev(), last, last.Next()} {
			if a.IsValid() {
				h.addrs = append(h.addrs, a)
			}
		}
	}
}

// lastOf is the last address of a prefix.
func lastOf(n netip.Prefix) netip.Addr {
	bytes := n.Addr().AsSlice()
	for i := n.Bits(); i < n.Addr().BitLen(); i++ {
		bytes[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(bytes)
	return a
}

func (h *hints) rules(rules []model.Rule) {
	for i := range rules {
		r := &rules[i]
		for _, s := range []*model.Entity{&r.Source, &r.Destination} {
			h.nets(s.Nets)
			h.nets(s.NotNets)
		}
		for _, p := range []*uint8{r.Protocol, r.NotProtocol} {
			if p == nil {
				continue
			}
			switch {
			case model.HasPorts(*p):
				h.edges(*p, r)
			case *p == model.ProtoICMP || *p == model.ProtoICMPv6:
				h.icmp(*p, r.ICMP)
				h.icmp(*p, r.NotICMP)
			default:
				h.packets = append(h.packets, model.Packet{Protocol: *p})
			}
		}
	}
}

// edges adds packets at both sides of both ends of every range of the rule.
func (h *hints) edges(proto uint8, r *model.Rule) {
	at := func(ranges ...[]model.PortRange) []uint16 {
		ports := []uint16{40000}
		for _, l := range ranges {
			for _, x := range l {
				ports = append(ports, x.Lo, x.Lo-1, x.Hi, x.Hi+1)
			}
		}
		return ports
	}
	for _, d := range at(r.Destination.Ports, r.Destination.NotPorts) {
		for _, s := range at(r.Source.Ports, r.Source.NotPorts) {
			h.packets = append(h.packets, model.Packet{Protocol: proto, SrcPort: s, DstPort: d})
		}
	}
}

func (h *hints) icmp(proto uint8, m *model.ICMPMatch) {
	if m == nil {
		h.packets = append(h.packets, model.Packet{Protocol: proto, ICMPType: 8})
		return
	}
	for range 4 { // often: nothing else finds them
		h.packets = append(h.packets, model.Packet{Protocol: proto, ICMPType: m.Type}, model.Packet{Protocol: proto, ICMPType: m.Type + 1})
		if m.Code != nil {
			h.packets = append(h.packets, model.Packet{Protocol: proto, ICMPType: m.Type, ICMPCode: *m.Code})
		}
	}
}

// drawL4 draws a packet without addresses: one of the hints, or any.
func (h *hints) drawL4(t *rapid.T) model.Packet {
	if !chance(t, 3, "any") {
		return one(t, h.packets, "hint")
	}
	p := model.Packet{Protocol: one(t, []uint8{6, 6, 6, 17, 17, 132, 1, 58, 136, 47, 2, 255}, "protocol")}
	if model.HasPorts(p.Protocol) {
		p.DstPort = one(t, h.ports, "dport")
		p.SrcPort = one(t, h.ports, "sport")
		return p
	}
	p.ICMPType = one(t, icmpTypes, "type")
	p.ICMPCode = one(t, icmpCodes, "code")
	return p
}
