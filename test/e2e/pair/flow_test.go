package pair

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/ipheader"
	"github.com/margay-project/margay/pkg/model"
)

// The ends of a flow: the client, which opens it, and the server.
const (
	client = iota
	server
)

// flow is what two hosts send each other. Each side of the pair has its own view of the client, which its node may have
// translated; the server answers as it sees it.
type flow struct {
	path
	asSeen [2]netip.AddrPort // the client as the server sees it, by side
	next   [2]uint32         // TCP: the next sequence number of either end
	shots  []*shot
	over   bool // the sides differ about it by a rule, so that nothing more follows

	sent, began, vain [2]bool  // which end has sent anything; and it arrived; and it did not, before anything had
	opener            int      // the end of which the first packet arrived
	last              [2]*shot // of either end: the last one that arrived
	denied            bool     // a packet did not arrive after another one had
	syns              [2]bool  // which end has sent a SYN
	ended             bool     // by a RST or ABORT that arrived
	judged            int      // the round in which a packet of it last arrived
}

// path is where a flow goes.
type path struct {
	protocol   uint8
	v6         bool
	places     [2]place
	src, dst   netip.AddrPort // as the client sends
	backend    netip.AddrPort // where it leads to
	masquerade bool           // the backend sees the node's address
}

// newFlow draws a flow of a pod with another one, the outside, or a Service.
func (p *pair) newFlow() *flow {
	v6 := p.oneIn(2)
	f := &flow{next: [2]uint32{1000, 500_000}}
	f.v6 = v6
	f.protocol = pick(p, model.ProtoTCP, model.ProtoTCP, model.ProtoTCP, model.ProtoUDP, model.ProtoUDP, model.ProtoSCTP, icmpOf(v6), anyProtocol)
	from, to := place(p.rand.IntN(places)), place(p.rand.IntN(localPods))
	if from == to || p.oneIn(2) {
		for from, to = to, place(p.rand.IntN(places)); from == to; {
			to = place(p.rand.IntN(places))
		}
	}
	f.places = [2]place{from, to}
	f.src = netip.AddrPortFrom(pick(p, addrsOf(from, v6)...), p.port())
	f.dst = netip.AddrPortFrom(pick(p, addrsOf(to, v6)...), p.destination())
	f.backend = f.dst
	if x := pick(p, fronts...); p.oneIn(4) && from != theNode && x.to != from && (from != outside || x.node && x.to != outside) {
		f.protocol = protocolOf(x.protocol)
		f.dst, f.backend, f.places[server], f.masquerade = x.at(v6), x.leadsTo(v6), x.to, x.masquerade
	}
	f.asSeen = [2]netip.AddrPort{f.src, f.src}
	if f.protocol == anyProtocol && !p.claim(f) {
		return p.newFlow()
	}
	return f
}

// anyProtocol stands for one without ports, of which each flow has another number or other ends.
const anyProtocol = 253

// claim gives a flow of anyProtocol its number; false: all are used.
func (p *pair) claim(f *flow) bool {
	for f.protocol = 143; f.protocol < anyProtocol; f.protocol++ {
		key := ends{netip.AddrPortFrom(f.src.Addr(), 0), netip.AddrPortFrom(f.backend.Addr(), 0), f.protocol}
		if key.b.Addr().Less(key.a.Addr()) {
			key.a, key.b = key.b, key.a
		}
		if _, used := p.opened[key]; !used {
			p.opened[key] = nil
			return true
		}
	}
	return false
}

func icmpOf(v6 bool) uint8 {
	if v6 {
		return model.ProtoICMPv6
	}
	return model.ProtoICMP
}

func protocolOf(name string) uint8 {
	return map[string]uint8{"tcp": model.ProtoTCP, "udp": model.ProtoUDP, "sctp": model.ProtoSCTP}[name]
}

// ends are the addresses of a packet of one end, on a side.
func (f *flow) ends(end, side int) (src, dst netip.AddrPort) {
	if end == client {
		return f.src, f.dst
	}
	return f.backend, f.asSeen[side]
}

// shot is the next packet of an end, without transport.
func (p *pair) shotOf(f *flow, end int, what string) *shot {
	x := &shot{what: what, from: f.places[end], place: f.places[1-end], k: p.token(), round: p.round, flow: f, inFlow: inFlow{end: end}}
	f.shots = append(f.shots, x)
	return x
}

// on is a shot as one side sends it.
func (x *shot) on(side int) testutil.Packet {
	q, f := x.packet, x.flow
	src, dst := f.ends(x.end, side)
	return turn(q, src, dst)
}

func withPort(a netip.AddrPort, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr(), port)
}

// turn is a packet with other ends.
func turn(q testutil.Packet, src, dst netip.AddrPort) testutil.Packet {
	q.Src, q.Dst = src.Addr(), dst.Addr()
	switch l4 := q.L4.(type) {
	case testutil.TCP:
		l4.SrcPort, l4.DstPort = src.Port(), dst.Port()
		q.L4 = l4
	case testutil.UDP:
		l4.SrcPort, l4.DstPort = src.Port(), dst.Port()
		q.L4 = l4
	case testutil.SCTP:
		l4.SrcPort, l4.DstPort = src.Port(), dst.Port()
		q.L4 = l4
	}
	return q
}

// learn notes what has become of a shot: who the server takes for its client, and how far TCP got.
func (p *pair) learn(x *shot) {
	f := x.flow
	f.sent[x.end] = f.sent[x.end] || !x.quotes
	both := [2]arrival{p.sides[byBPF].board.of(x.k), p.sides[byIPTables].board.of(x.k)}
	if both[0].places != both[1].places || (both[0].invalid || both[1].invalid) && conntrackJudges(x.packet) {
		f.over = true
		return
	}
	if both[0].places == 0 && f.began == [2]bool{} {
		f.vain[x.end] = f.vain[x.end] || !x.quotes
	}
	f.denied = f.denied || f.began != [2]bool{} && both[0].places == 0
	if both[0].places == 0 || x.quotes {
		return
	}
	if f.began == [2]bool{} {
		f.opener = x.end
	}
	f.judged = x.round
	f.ended = f.ended || x.ends
	if x.end == client {
		for i, a := range both {
			if seen, ok := senderOf(a.packet); ok {
				f.asSeen[i] = seen
			}
		}
	}
	f.began[x.end], f.last[x.end] = true, x
	if l4, ok := x.packet.L4.(testutil.TCP); ok {
		f.next[x.end] = l4.Seq + uint32(len(x.packet.Payload))
		if l4.Flags&(testutil.SYN|testutil.FIN) != 0 {
			f.next[x.end]++
		}
	}
}

// openerOr is the end that has opened the flow, or the other one if no packet of it has arrived.
func (f *flow) openerOr(end int) int {
	if f.began == [2]bool{} {
		return end
	}
	return f.opener
}

// senderOf is the source of an arrived packet, and its port where it has one.
func senderOf(packet []byte) (netip.AddrPort, bool) {
	ip, err := ipheader.Parse(packet)
	if err != nil || !model.HasPorts(ip.Protocol) || len(ip.Transport) < 2 {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(ip.Src, uint16(ip.Transport[0])<<8|uint16(ip.Transport[1])), true
}

// history is what was sent of the flow.
func (f *flow) history(p *pair) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  a flow of protocol %d from %s at %s to %s, backend %s at %s, seen as %v\n", f.protocol, f.src, f.places[0], f.dst, f.backend, f.places[1], f.asSeen)
	for _, x := range f.shots {
		fmt.Fprintf(&b, "  round %d: %s: [%s] [%s]%s\n", x.round, x, names(p.sides[0].board.of(x.k)), names(p.sides[1].board.of(x.k)), map[bool]string{true: " last fragment first"}[x.swapped])
	}
	for end := range 2 {
		fmt.Fprintf(&b, "  the oracle of a first packet of end %d: %v\n", end, p.allows(f.first(end)))
	}
	return b.String()
}
