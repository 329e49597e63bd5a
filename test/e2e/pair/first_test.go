package pair

import (
	"net/netip"
	"slices"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/model"
)

// pairsPerPolicy is how many first packets are sent under one policy.
const pairsPerPolicy = 100

// ends are the two ends of a flow, the lower one first.
type ends struct {
	a, b     netip.AddrPort
	protocol uint8
}

// protocols are drawn evenly.
var protocols = []uint8{6, 6, 6, 6, 17, 17, 17, 132, 132, 1, 1, 1, 136, 47, 2, 253}

// portNumbers are edges of what internal/corpus draws policies about.
var portNumbers = []uint16{1, 53, 79, 80, 80, 81, 255, 256, 443, 1023, 1024, 5432, 8079, 8080, 8080, 9000, 9255, 9256, 32768, 65534, 65535, 4789}

func pick[T any](p *pair, list ...T) T { return list[p.rand.IntN(len(list))] }

func (p *pair) oneIn(n int) bool { return p.rand.IntN(n) == 0 }

// playPairs sends so many packets that begin flows.
func (p *pair) playPairs(n int) {
	p.t.Helper()
	var shots []*shot
	for range n {
		shots = append(shots, p.first())
	}
	slices.SortStableFunc(shots, func(a, b *shot) int { return int(a.from - b.from) }) // as they are sent
	for _, x := range shots {
		if x.target.IsValid() {
			p.judge(x, x.packet, x.target)
		}
	}
	p.fire(shots, func(x *shot, side int) [][]byte { return [][]byte{p.sides[side].frame(x.from, x.packet).Bytes()} })
}

// first is a packet that begins a flow, of any kind, between places of which one is a pod at least.
func (p *pair) first() *shot {
	v6 := p.oneIn(2)
	from, to := place(p.rand.IntN(places)), place(p.rand.IntN(localPods))
	if p.oneIn(2) {
		from, to = to, place(p.rand.IntN(places))
	}
	x := &shot{what: "first packet", from: from, place: to, k: p.token(), round: p.round}
	src := pick(p, addrsOf(from, v6)...)
	if from < outside && p.oneIn(40) {
		src, x.what = pick(p, addrsOf(place(p.rand.IntN(places)), v6)...), "first packet from a foreign address"
	}
	dst := pick(p, addrsOf(to, v6)...)
	protocol := pick(p, protocols...)
	q := testutil.Packet{Src: src, Dst: dst, Payload: x.k.bytes(), ID: uint32(x.k)}
	sport, dport := p.port(), p.destination()
	if p.oneIn(8) && model.HasPorts(protocol) {
		sport = pick(p, portNumbers...)
	}
	switch f := pick(p, fronts...); {
	case p.oneIn(6) && (f.node || from != outside) && from != theNode:
		q.Dst, dport, x.place = f.at(v6).Addr(), f.port, f.to
		sport = p.port() // one that no other flow to the backend has, so that the node need not change it
		protocol = map[string]uint8{"tcp": 6, "udp": 17, "sctp": 132}[f.protocol]
		q.L4, q.Payload = p.layer4(protocol, v6, sport, dport, x.k)
		x.what = "first packet to a Service"
		if dst := f.leadsTo(v6); !f.masquerade && dst.Addr() != src {
			x.target = dst
		}
	default:
		q.L4, q.Payload = p.layer4(protocol, v6, sport, dport, x.k)
		x.target = netip.AddrPortFrom(dst, dport)
	}
	x.packet = q
	return x
}

// destination is a port, mostly one at an edge of what policy says.
func (p *pair) destination() uint16 {
	if p.oneIn(3) {
		return pick(p, portNumbers...)
	}
	return pick(p, p.edges...)
}

// port is a source port that is seldom used twice.
func (p *pair) port() uint16 {
	p.ports++
	return 10000 + p.ports%50000
}

// layer4 is the transport and payload of a packet that begins a flow.
func (p *pair) layer4(protocol uint8, v6 bool, sport, dport uint16, k token) (testutil.Layer4, []byte) {
	payload := k.bytes()
	switch protocol {
	case model.ProtoTCP:
		return testutil.TCP{SrcPort: sport, DstPort: dport, Flags: testutil.SYN, Seq: 1000}, payload
	case model.ProtoUDP:
		return testutil.UDP{SrcPort: sport, DstPort: dport}, payload
	case model.ProtoUDPLite:
		return testutil.UDP{SrcPort: sport, DstPort: dport, Lite: true}, payload
	case model.ProtoSCTP:
		return testutil.SCTP{SrcPort: sport, DstPort: dport}, sctpInit(1, 0x01020304, payload)
	case model.ProtoICMP:
		types := []uint8{8, 8, 0, 3, 13, 255}
		if v6 {
			types = []uint8{128, 128, 129, 200, 255, 3}
		}
		return testutil.ICMP{Type: pick(p, types...), Code: pick[uint8](p, 0, 0, 1, 4, 255), ID: sport}, payload
	}
	return testutil.Raw(protocol), payload
}

// judge asks the oracle about a packet, where policy alone decides: it begins a flow with ends that were not used before,
// between addresses of which the source is the sender's own, and is no tunnel, error or answer.
func (p *pair) judge(x *shot, q testutil.Packet, dst netip.AddrPort) {
	m := model.Packet{Src: q.Src, Dst: dst.Addr()}
	switch l4 := q.L4.(type) {
	case testutil.TCP:
		m.Protocol, m.SrcPort, m.DstPort = model.ProtoTCP, l4.SrcPort, dst.Port()
	case testutil.UDP:
		m.Protocol, m.SrcPort, m.DstPort = model.ProtoUDP, l4.SrcPort, dst.Port()
		if l4.Lite {
			m.Protocol, m.SrcPort, m.DstPort = model.ProtoUDPLite, 0, 0
		}
		if !l4.Lite && dst.Port() == 4789 {
			return
		}
	case testutil.SCTP:
		m.Protocol, m.SrcPort, m.DstPort = model.ProtoSCTP, l4.SrcPort, dst.Port()
	case testutil.ICMP:
		m.Protocol, m.ICMPType, m.ICMPCode = model.ProtoICMP, l4.Type, l4.Code
		if q.Src.Is6() {
			m.Protocol = model.ProtoICMPv6
		}
		if l4.Type == 3 {
			return // it quotes nothing
		}
	case testutil.Raw:
		if m.Protocol = uint8(l4); m.Protocol == 47 {
			return
		}
	}
	known := p.opens(x, m, q)
	allow := p.allows(m)
	if x.unfollowed = known && isLite(q); x.unfollowed || followed(q) && x.askedOtherWay() && allow != x.turned {
		x.either = !x.unfollowed
		return
	}
	if placeOf(m.Src) != x.from {
		return
	}
	x.want = &allow
}

// askedOtherWay reports whether the other end has sent a packet with the same ends before.
func (o *opening) askedOtherWay() bool {
	return slices.ContainsFunc(o.before, func(y *shot) bool { return y.model.Src == o.model.Dst })
}

// allows is the oracle's word on a packet, of the policies of node0's pods: another node's agent judges its own.
func (p *pair) allows(m model.Packet) bool {
	f := p.oracle.Flow(m)
	if placeOf(m.Src) == theNode { // its own pods
		return true
	}
	return (placeOf(m.Src) == outside || f.Egress == nil || f.Egress.Allow) && (placeOf(m.Dst) >= outside || f.Ingress == nil || f.Ingress.Allow)
}

// opens notes the ends of a flow and reports whether they were used before.
func (p *pair) opens(x *shot, m model.Packet, q testutil.Packet) (known bool) {
	flow := ends{netip.AddrPortFrom(m.Src, m.SrcPort), netip.AddrPortFrom(m.Dst, m.DstPort), m.Protocol}
	if m.Dst.Less(m.Src) {
		flow.a, flow.b = flow.b, flow.a
	}
	if l4, ok := q.L4.(testutil.ICMP); ok && followed(q) {
		flow.a = netip.AddrPortFrom(flow.a.Addr(), l4.ID)
	} else if ok {
		flow.a = netip.AddrPortFrom(flow.a.Addr(), uint16(l4.Type)<<8|uint16(l4.Code))
	}
	x.model, x.before = m, p.opened[flow]
	m.Src, m.Dst, m.SrcPort, m.DstPort = m.Dst, m.Src, m.DstPort, m.SrcPort
	x.turned = p.allows(m)
	p.opened[flow] = append(x.before, x)
	return len(x.before) > 0
}

// isLite reports whether a packet is one of UDP-Lite, whose flows BPF alone follows.
func isLite(q testutil.Packet) bool {
	l4, ok := q.L4.(testutil.UDP)
	return ok && l4.Lite
}

// followed reports whether both dataplanes follow flows of the packet's kind. Both judge each ICMP message that is no echo for itself.
func followed(q testutil.Packet) bool {
	switch l4 := q.L4.(type) {
	case testutil.UDP:
		return !l4.Lite
	case testutil.ICMP:
		if q.Src.Is6() {
			return l4.Type == 128 || l4.Type == 129
		}
		return l4.Type == 8 || l4.Type == 0
	}
	return true
}

// sctpInit is an INIT (1) or INIT-ACK (2) chunk with a parameter that every implementation may skip.
func sctpInit(kind uint8, tag uint32, parameter []byte) []byte {
	body := []byte{byte(tag >> 24), byte(tag >> 16), byte(tag >> 8), byte(tag), 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0xbf, 0xff, 0, byte(4 + len(parameter))}
	return sctpChunk(kind, append(body, parameter...))
}

// sctpChunk is one chunk; its body is padded to a multiple of 4.
func sctpChunk(kind uint8, body []byte) []byte {
	chunk := append([]byte{kind, 0, byte((4 + len(body)) >> 8), byte(4 + len(body))}, body...)
	for len(chunk)%4 != 0 {
		chunk = append(chunk, 0)
	}
	return chunk
}
