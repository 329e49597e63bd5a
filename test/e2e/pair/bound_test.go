package pair

import (
	"github.com/margay-project/margay/pkg/model"
)

// A packet of a flow may pass only if the policy of each end allows the flow as one of the ends has begun it, or the packet
// for itself. This holds for both dataplanes at all times, whatever they have on record.

// within reports whether policy in force allows a shot to pass that has arrived at places, a bit each.
func (p *pair) within(x *shot, places uint8) bool {
	f, from, to := x.flow, x.end, 1-x.end
	if places == 1<<theNode && from == client && f.dst != f.backend { // to a NodePort, and not translated: to the node itself
		return p.withinNode(f)
	}
	flows := []model.Packet{f.first(from)}
	if f.sent[to] {
		flows = append(flows, f.first(to))
	}
	if x.quotes {
		flows = append(flows, x.message())
	}
	if from == server && f.dst != f.backend { // what comes back from a Service, of no flow on record, comes from its address
		m := f.first(server)
		m.Src, m.SrcPort = f.dst.Addr(), f.dst.Port()
		flows = append(flows, m)
	}
	legs := [2]bool{server: f.masquerade} // the oracle has no word on the node's address in the place of another
	for _, m := range flows {
		verdicts := p.oracle.Flow(m)
		for end, place := range f.places {
			leg := verdicts.Ingress
			if m.Dst != f.first(end).Src {
				leg = verdicts.Egress
			}
			legs[end] = legs[end] || place >= outside || leg == nil || leg.Allow || f.places[1-end] == theNode && f.sent[1-end]
		}
	}
	return legs[client] && legs[server]
}

// withinNode reports whether policy in force allows a packet to a NodePort that goes to the node itself: one that the pod sends for itself, or
// an answer to a SYN that came from there.
func (p *pair) withinNode(f *flow) bool {
	m := f.first(client)
	m.Dst, m.DstPort = f.dst.Addr(), f.dst.Port()
	leg := p.oracle.Flow(m).Egress
	if leg == nil || leg.Allow {
		return true
	}
	m.Src, m.Dst, m.SrcPort, m.DstPort = m.Dst, m.Src, m.DstPort, m.SrcPort
	leg = p.oracle.Flow(m).Ingress
	return f.syns[server] && (leg == nil || leg.Allow)
}

// first is a packet of an end, as policy judges it if it begins a flow.
func (f *flow) first(end int) model.Packet {
	m := model.Packet{Src: f.src.Addr(), Dst: f.backend.Addr(), Protocol: f.protocol}
	if model.HasPorts(f.protocol) {
		m.SrcPort, m.DstPort = f.src.Port(), f.backend.Port()
	}
	if end == server {
		m.Src, m.Dst, m.SrcPort, m.DstPort = m.Dst, m.Src, m.DstPort, m.SrcPort
	}
	if f.protocol == model.ProtoICMP || f.protocol == model.ProtoICMPv6 {
		m.ICMPType = echoTypes(f.v6)[end]
	}
	return m
}

// echoTypes are the types of a request and an answer.
func echoTypes(v6 bool) [2]uint8 {
	if v6 {
		return [2]uint8{128, 129}
	}
	return [2]uint8{8, 0}
}

// unreachable is the type of the errors that are sent.
func unreachable(v6 bool) uint8 {
	if v6 {
		return 1
	}
	return 3
}

// message is an ICMP error as policy judges it if it belongs to no flow.
func (x *shot) message() model.Packet {
	m := x.flow.first(x.end)
	m.SrcPort, m.DstPort, m.Protocol = 0, 0, icmpOf(x.flow.v6)
	m.ICMPType, m.ICMPCode = unreachable(x.flow.v6), 1
	return m
}
