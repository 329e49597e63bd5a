package pair

import (
	"bytes"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/model"
)

const (
	sequencesAtOnce = 100
	stepsPerFlow    = 12
)

// playSequences plays so many flows at once, a packet of each in a step. Policy changes twice meanwhile.
func (p *pair) playSequences(n int) {
	p.t.Helper()
	var flows []*flow
	for range n {
		flows = append(flows, p.newFlow())
	}
	changes := map[int]bool{2 + p.rand.IntN(4): true, 7 + p.rand.IntN(4): true}
	for step := range stepsPerFlow {
		if changes[step] {
			p.newPolicy()
		}
		var shots []*shot
		for _, f := range flows {
			if !f.over {
				shots = append(shots, p.step(f))
			}
		}
		p.fire(shots, p.framesOf)
		if p.t.Failed() {
			return
		}
		for _, x := range shots {
			p.learn(x)
		}
	}
	p.counts["sequences"] += n
}

// framesOf are the frames of a shot of a flow on a side.
func (p *pair) framesOf(x *shot, side int) [][]byte {
	q := p.sides[side].frame(x.from, x.on(side))
	if x.quotes {
		q = p.sides[side].frame(x.from, x.errorOn(side))
	}
	if x.tail == 0 {
		return [][]byte{q.Bytes()}
	}
	frames := q.Fragments(fragmentSize)
	if x.swapped {
		frames[0], frames[len(frames)-1] = frames[len(frames)-1], frames[0]
	}
	return frames
}

// fragmentSize is how many bytes of transport a fragment has: the first has the first token, the last one the other.
const fragmentSize = 48

// step draws the next packet of a flow: mostly what its protocol would have come next, sometimes anything else.
func (p *pair) step(f *flow) *shot {
	if f.last[client] != nil && p.oneIn(10) {
		return p.errorAbout(f)
	}
	odd := p.oneIn(6) && (f.dst == f.backend || f.began[client]) // a Service's backend does not know its client before
	var x *shot
	switch f.protocol {
	case model.ProtoTCP:
		x = p.tcp(f, odd)
	case model.ProtoSCTP:
		x = p.sctp(f, odd)
	default:
		x = p.datagram(f, odd)
	}
	if len(x.packet.Payload) == tokenSize && p.oneIn(8) && f.protocol != model.ProtoSCTP && x.from != theNode { // which sends no fragments of its own
		p.fragment(x)
	}
	if p.oneIn(6) {
		p.extend(x)
	}
	return x
}

// extend gives a shot options of IPv4, or extension headers of IPv6.
func (p *pair) extend(x *shot) {
	if !x.flow.v6 {
		x.what += ", with options"
		x.packet.Options = pick(p, bytes.Repeat([]byte{1}, 40), []byte{7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0}, []byte{148, 4, 0, 0}, []byte{1, 0, 255, 255})
		return
	}
	padding := []byte{1, 4, 0, 0, 0, 0}
	headers := []testutil.Extension{
		{Header: unix.IPPROTO_DSTOPTS, Body: padding}, {Header: unix.IPPROTO_ROUTING, Body: []byte{4, 0, 0, 0, 0, 0}},
		{Header: unix.IPPROTO_DSTOPTS, Body: append([]byte{1, 12}, make([]byte, 12)...)},
	}
	if x.flow.dst == x.flow.backend { // the node's rules for Services, of nft, do not find the ports behind an authentication header
		headers = append(headers, testutil.Extension{Header: unix.IPPROTO_AH, Body: make([]byte, 14)})
	}
	if p.oneIn(3) {
		x.packet.Extensions = append(x.packet.Extensions, testutil.Extension{Header: unix.IPPROTO_HOPOPTS, Body: padding})
	}
	for range 1 + p.rand.IntN(2) {
		next := pick(p, headers...)
		x.authenticated, x.routed = x.authenticated || next.Header == unix.IPPROTO_AH, x.routed || next.Header == unix.IPPROTO_ROUTING
		x.packet.Extensions = append(x.packet.Extensions, next)
	}
	x.what += ", with extension headers"
}

// fragment makes a shot one of three fragments, each with a token or a part of the filling between.
func (p *pair) fragment(x *shot) {
	tail, swapped := p.token(), p.oneIn(4)
	if !p.held.room(x.from, time.Now()) {
		return
	}
	x.tail, x.what, x.swapped = tail, x.what+", in fragments", swapped
	x.packet.ID = uint32(x.k)
	x.packet.Payload = append(append(x.packet.Payload, bytes.Repeat([]byte{'.'}, 2*fragmentSize)...), x.tail.bytes()...)
}

// fragmentsHeld are the times at which hosts have sent fragments lately. By BPF, datagrams with the last fragment first or with extension
// headers are never complete, and are charged to their pod for 77 s. It has room for 256 of them, in 32 sets. On a fast machine a pod would
// send more.
type fragmentsHeld [places][]time.Time

// room reports whether a host may send one more at a time, and notes it.
func (h *fragmentsHeld) room(from place, now time.Time) bool {
	lately := slices.DeleteFunc(h[from], func(at time.Time) bool { return now.Sub(at) > 80*time.Second })
	room := len(lately) < 60
	if room {
		lately = append(lately, now)
	}
	h[from] = lately
	return room
}

// tcp draws the next segment.
func (p *pair) tcp(f *flow, odd bool) *shot {
	end, flags, what := client, testutil.PSH|testutil.ACK, "TCP data"
	switch {
	case odd:
		end = p.rand.IntN(2)
		flags = pick(p, testutil.SYN, testutil.SYN|testutil.ACK, testutil.ACK, testutil.FIN|testutil.ACK, testutil.RST, testutil.RST|testutil.ACK)
		what = "TCP out of order"
	case !f.began[client]:
		flags, what = testutil.SYN, "TCP SYN"
	case !f.began[server]:
		end, flags, what = server, testutil.SYN|testutil.ACK, "TCP SYN-ACK"
	case p.oneIn(2):
		end = server
		fallthrough
	default:
		if p.oneIn(12) {
			flags, what = testutil.FIN|testutil.ACK, "TCP FIN"
		}
	}
	x := p.shotOf(f, end, what)
	l4 := testutil.TCP{Flags: flags, Seq: f.next[end]}
	if flags&testutil.ACK != 0 {
		l4.Ack = f.next[1-end]
	}
	f.syns[end] = f.syns[end] || flags == testutil.SYN
	x.packet, x.ends = testutil.Packet{L4: l4, Payload: x.k.bytes()}, flags&testutil.RST != 0
	return x
}

// datagram draws the next packet of UDP, ICMP echo or a protocol without ports.
func (p *pair) datagram(f *flow, odd bool) *shot {
	end := client
	if f.began[client] && p.oneIn(2) || odd && p.oneIn(2) {
		end = server
	}
	x := p.shotOf(f, end, "datagram")
	x.packet = testutil.Packet{Payload: x.k.bytes()}
	switch f.protocol {
	case model.ProtoUDP:
		x.packet.L4 = testutil.UDP{}
	case model.ProtoICMP, model.ProtoICMPv6:
		x.packet.L4, x.what = testutil.ICMP{Type: echoTypes(f.v6)[end], ID: f.src.Port(), Seq: uint16(len(f.shots))}, "ICMP echo"
	default:
		x.packet.L4 = testutil.Raw(f.protocol)
	}
	return x
}

// Tags of SCTP that either end gives the other.
var sctpTags = [2]uint32{0x01020304, 0x05060708}

// sctp draws the next chunk of an association.
func (p *pair) sctp(f *flow, odd bool) *shot {
	const data, initAck, abort, cookieEcho = 0, 2, 6, 10
	done := 0
	for _, x := range f.shots {
		if p.sides[byBPF].board.of(x.k).places != 0 && !x.quotes {
			done++
		}
	}
	end, what := client, "SCTP INIT"
	switch {
	case done == 1:
		end, what = server, "SCTP INIT-ACK"
	case done == 2:
		what = "SCTP COOKIE-ECHO"
	case done > 2:
		end, what = p.rand.IntN(2), "SCTP data"
	}
	if odd {
		end, what = p.rand.IntN(2), pick(p, "SCTP ABORT", "SCTP data", "SCTP INIT-ACK")
	}
	x := p.shotOf(f, end, what)
	l4 := testutil.SCTP{Tag: sctpTags[1-end]}
	var chunk []byte
	switch what {
	case "SCTP INIT":
		l4.Tag, chunk = 0, sctpInit(1, sctpTags[end], x.k.bytes())
	case "SCTP INIT-ACK":
		chunk = sctpInit(initAck, sctpTags[end], x.k.bytes())
	case "SCTP COOKIE-ECHO":
		chunk = sctpChunk(cookieEcho, x.k.bytes())
	case "SCTP ABORT":
		chunk = sctpChunk(abort, x.k.bytes())
	default:
		chunk = sctpChunk(data, append(make([]byte, 12), x.k.bytes()...))
	}
	x.packet, x.ends = testutil.Packet{L4: l4, Payload: chunk}, what == "SCTP ABORT"
	return x
}

// errorAbout is an ICMP error of the server about what the client has sent, or the other way round: about what arrived
// there, or made up.
func (p *pair) errorAbout(f *flow) *shot {
	end := server
	if f.last[server] != nil && p.oneIn(2) {
		end = client
	}
	x := p.shotOf(f, end, "ICMP error")
	x.quotes = true
	if x.forged = p.oneIn(4); x.forged {
		x.what = "ICMP error about nothing"
	}
	x.packet = testutil.Packet{Payload: x.k.bytes()}
	return x
}

// errorOn is the error as a side sends it: it quotes what its sender has got, with its own token in place of the data.
func (x *shot) errorOn(side int) testutil.Packet {
	f := x.flow
	quoted := f.last[1-x.end].on(side) // as it was sent
	own, other := f.ends(x.end, side)
	quoted = turn(quoted, other, own) // as it arrived
	if x.forged {
		quoted = turn(quoted, other, withPort(own, own.Port()+1))
	}
	quoted.Payload = x.packet.Payload
	l4 := testutil.ICMP{Type: unreachable(f.v6), Code: 1, Quote: quoted.IP()}
	return testutil.Packet{Src: own.Addr(), Dst: other.Addr(), L4: l4}
}
