package hostile

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab"
)

// crafter makes random frames of one attacker. What it makes depends on its seed, on the addresses and on the live flows
// it is given, and on nothing else.
type crafter struct {
	*rand.Rand
	pod   *lab.Pod
	tag   token // in the highest byte of each token
	seq   token
	kinds []string // by number of the token: what it was

	addrs [2][]netip.Addr // to send to, and as, by is-IPv6
	ports []uint16
	live  []testutil.Packet // of flows that are open, its own and others'
}

func pick[T any](r *crafter, list ...T) T { return list[r.IntN(len(list))] }

func (r *crafter) oneIn(n int) bool { return r.IntN(n) == 0 }

// bytes are as many random ones as a number up to max says.
func (r *crafter) bytes(max int) []byte {
	b := make([]byte, r.IntN(max+1))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// mark is the token of the next packet.
func (r *crafter) mark(kind string) token {
	r.seq++
	r.kinds = append(r.kinds, kind)
	return r.tag<<56 | r.seq
}

// kindOf is what a token's packet was.
func (r *crafter) kindOf(k token) string {
	if i := int(k &^ (0xff << 56)); i >= 1 && i <= len(r.kinds) {
		return r.kinds[i-1]
	}
	return "of no known kind"
}

func (r *crafter) port() uint16 {
	if r.oneIn(10) {
		return uint16(r.Uint32())
	}
	return pick(r, r.ports...)
}

// source is mostly its own.
func (r *crafter) source(v6 bool) netip.Addr {
	if r.oneIn(6) {
		return pick(r, r.addrs[family(v6)]...)
	}
	return r.pod.Addr(v6)
}

func family(v6 bool) int {
	if v6 {
		return 1
	}
	return 0
}

// packet is a plain one without payload.
func (r *crafter) packet() testutil.Packet {
	if r.oneIn(5) {
		return r.ofLiveFlow()
	}
	v6 := r.oneIn(2)
	return testutil.Packet{
		SrcMAC: r.pod.MAC(), DstMAC: r.mac(), Src: r.source(v6), Dst: pick(r, r.addrs[family(v6)]...), ID: uint32(r.IntN(64)),
		L4: r.transport(v6), TTL: pick[uint8](r, 0, 64, 64, 64, 1, 2, 255), TOS: uint8(r.IntN(4)),
	}
}

// ofLiveFlow is a packet of a live flow, in either direction, with other flags or another source.
func (r *crafter) ofLiveFlow() testutil.Packet {
	p := pick(r, r.live...)
	p.SrcMAC, p.DstMAC = r.pod.MAC(), lab.HostMAC
	if t, ok := p.L4.(testutil.TCP); ok {
		t.Flags, t.Seq, t.Ack = r.flags(), r.Uint32(), r.Uint32()
		p.L4 = t
	}
	if r.oneIn(2) {
		p = answer(p)
	}
	if r.oneIn(3) {
		p.Src = r.source(p.Src.Is6())
	}
	return p
}

// answer turns the ends of a packet of TCP or UDP round.
func answer(p testutil.Packet) testutil.Packet {
	p.Src, p.Dst = p.Dst, p.Src
	switch h := p.L4.(type) {
	case testutil.TCP:
		h.SrcPort, h.DstPort = h.DstPort, h.SrcPort
		p.L4 = h
	case testutil.UDP:
		h.SrcPort, h.DstPort = h.DstPort, h.SrcPort
		p.L4 = h
	}
	return p
}

// mac is mostly the node's.
func (r *crafter) mac() net.HardwareAddr {
	switch r.IntN(20) {
	case 0:
		return net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	case 1:
		return net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}
	case 2:
		return net.HardwareAddr{1, 0, 0x5e, 0, 0, 1}
	case 3:
		return net.HardwareAddr{2, 0, 0, 0, 0, byte(r.Uint32())}
	}
	return lab.HostMAC
}

func (r *crafter) flags() uint8 {
	return pick(r, testutil.SYN, testutil.ACK, testutil.ACK|testutil.PSH, testutil.SYN|testutil.ACK, testutil.RST, testutil.FIN|testutil.ACK,
		testutil.RST|testutil.ACK, uint8(r.Uint32()))
}

func (r *crafter) transport(v6 bool) testutil.Layer4 {
	src, dst := r.port(), r.port()
	switch r.IntN(12) {
	case 0, 1, 2, 3:
		t := testutil.TCP{SrcPort: src, DstPort: dst, Seq: r.Uint32(), Ack: r.Uint32(), Flags: r.flags(), BadChecksum: r.oneIn(20)}
		if r.oneIn(4) {
			t.Options = r.bytes(40)
		}
		if r.oneIn(20) {
			t.DataOffset = uint8(1 + r.IntN(15))
		}
		return t
	case 4, 5, 6, 7:
		return testutil.UDP{SrcPort: src, DstPort: dst, NoChecksum: !v6 && r.oneIn(5)}
	case 8:
		return testutil.UDP{SrcPort: src, DstPort: dst, Lite: true}
	case 9:
		return testutil.SCTP{SrcPort: src, DstPort: dst, Tag: r.Uint32()}
	case 10:
		return testutil.Raw(r.Uint32())
	}
	return r.icmp(v6)
}

func (r *crafter) icmp(v6 bool) testutil.ICMP {
	h := testutil.ICMP{Type: uint8(r.IntN(44)), Code: uint8(r.IntN(16)), ID: r.port(), Seq: uint16(r.IntN(8))}
	if v6 {
		h.Type = pick(r, uint8(r.IntN(5)), 128, 129, uint8(130+r.IntN(30)))
	}
	if r.oneIn(2) {
		about := r.packet4or6(v6)
		if r.oneIn(2) { // something its receiver could have sent to it
			about = answer(about)
		}
		h.Quote = testutil.Quoting(about)
	}
	return h
}

// packet4or6 is a packet of TCP or UDP of one family.
func (r *crafter) packet4or6(v6 bool) testutil.Packet {
	if p := r.ofLiveFlow(); p.Src.Is6() == v6 && r.oneIn(2) {
		return p
	}
	return testutil.Packet{
		Src: r.source(v6), Dst: pick(r, r.addrs[family(v6)]...), L4: testutil.UDP{SrcPort: r.port(), DstPort: r.port()},
	}
}

// frames makes one or a few frames that belong together.
func (r *crafter) frames() [][]byte {
	switch r.IntN(14) {
	case 0, 1, 2:
		return r.plain()
	case 3, 4:
		return r.withOptions()
	case 5, 6:
		return r.fragments()
	case 7:
		return r.tunnel()
	case 8:
		return r.odd()
	case 9:
		return r.arp()
	case 10:
		return r.discovery()
	case 11:
		return r.truncated()
	case 12:
		return r.garbage()
	}
	return r.mutation()
}

func (r *crafter) plain() [][]byte {
	p := r.packet()
	p.Payload = append(r.mark("plain").bytes(), r.bytes(64)...)
	return [][]byte{p.Bytes()}
}

func (r *crafter) withOptions() [][]byte {
	p := r.packet()
	p.Payload = r.mark("with options or extension headers").bytes()
	if p.Src.Is4() {
		p.Options = r.bytes(40)
		if r.oneIn(2) { // loose or strict source routing, of hops to come or passed, with options behind it that may be wrong
			p.Options = append([]byte{pick[byte](r, 131, 137), 7, pick[byte](r, 4, 8, 255)}, pick(r, r.addrs[0]...).AsSlice()...)
			p.Options = append(p.Options, r.bytes(33)...)
		}
		return [][]byte{p.Bytes()}
	}
	for range 1 + r.IntN(8) {
		e := testutil.Extension{Header: pick[uint8](r, 0, 43, 44, 51, 60, 60, 135, 139, 140), Body: r.bytes(20)}
		if e.Header == 43 && r.oneIn(2) {
			e.Body = append([]byte{pick[byte](r, 0, 2, 4), byte(r.IntN(2)), 0, 0, 0, 0}, pick(r, r.addrs[1]...).AsSlice()...)
		}
		p.Extensions = append(p.Extensions, e)
	}
	return [][]byte{p.Bytes()}
}

// fragments are those of one datagram or of two with the same identification, in some order, with some missing.
func (r *crafter) fragments() (frames [][]byte) {
	for range 1 + r.IntN(2) {
		p := r.packet()
		p.ID, p.Payload = uint32(r.IntN(8)), bytes.Repeat(r.mark("in fragments").bytes(), 1+r.IntN(6))
		frames = append(frames, p.Fragments(8*(1+r.IntN(8)))...)
	}
	if r.oneIn(2) {
		r.Shuffle(len(frames), func(i, k int) { frames[i], frames[k] = frames[k], frames[i] })
	}
	return frames[:max(1, len(frames)-r.IntN(2))]
}

// tunnel is a packet that bears another, with somebody's addresses inside.
func (r *crafter) tunnel() [][]byte {
	inner, outer := r.packet(), r.packet()
	inner.Payload = r.mark("a tunnel").bytes()
	packet, ether := inner.IP(), uint16(testutil.EtherIPv4)
	if inner.Src.Is6() {
		ether = testutil.EtherIPv6
	}
	switch r.IntN(5) {
	case 0:
		outer.L4, outer.Payload = testutil.Raw(unix.IPPROTO_IPIP), packet
		if ether == testutil.EtherIPv6 {
			outer.L4 = testutil.Raw(unix.IPPROTO_IPV6)
		}
	case 1:
		outer.L4, outer.Payload = testutil.Raw(unix.IPPROTO_GRE), append(binary.BigEndian.AppendUint16([]byte{0, 0}, ether), packet...)
	case 2:
		outer.L4 = testutil.UDP{SrcPort: r.port(), DstPort: pick[uint16](r, 4789, 8472)}
		outer.Payload = append([]byte{8, 0, 0, 0, 0, 0, byte(r.IntN(3)), 0}, inner.Bytes()...)
	case 3:
		outer.L4 = testutil.UDP{SrcPort: r.port(), DstPort: 6081}
		outer.Payload = append([]byte{0, 0, 0x65, 0x58, 0, 0, 1, 0}, inner.Bytes()...)
	case 4:
		outer.L4, outer.Payload = testutil.Raw(pick[uint8](r, 50, 51, 94, 97, 98, 115, 137)), packet
	}
	return [][]byte{outer.Bytes()}
}

// odd is a frame of another EtherType, or with tags.
func (r *crafter) odd() [][]byte {
	p := r.packet()
	p.Payload = r.mark("an odd frame").bytes()
	frame := p.Bytes()
	switch r.IntN(3) {
	case 0: // length, LLDP, MPLS, PPPoE, EAPOL, PROFINET, MACsec, any
		binary.BigEndian.PutUint16(frame[12:], pick(r, 46, 0x88cc, 0x8847, 0x8864, 0x888e, 0x8892, 0x88e5, uint16(r.Uint32())))
		return [][]byte{frame}
	case 1:
		return [][]byte{tagged(frame, 0x8100_0000|uint32(uint16(r.Uint32())))}
	}
	return [][]byte{tagged(frame, 0x88a8_0000|uint32(r.IntN(8)), 0x8100_0000|uint32(r.IntN(8)))}
}

// arp is a request or an answer with anybody's addresses.
func (r *crafter) arp() [][]byte {
	b := append(append(net.HardwareAddr{}, r.mac()...), r.pod.MAC()...)
	b = append(b, 0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, byte(1+r.IntN(2)))
	b = append(append(b, r.pod.MAC()...), r.source(false).AsSlice()...)
	b = append(append(b, 0, 0, 0, 0, 0, 0), pick(r, r.addrs[0]...).AsSlice()...)
	return [][]byte{append(b, r.mark("ARP").bytes()...)}
}

// discovery is a message of IPv6 neighbour discovery with anybody's addresses.
func (r *crafter) discovery() [][]byte {
	p := testutil.Packet{
		SrcMAC: r.pod.MAC(), DstMAC: r.mac(), Src: r.source(true), TTL: pick[uint8](r, 255, 255, 255, 1),
		Dst: pick(r, append([]netip.Addr{netip.MustParseAddr("ff02::1"), netip.MustParseAddr("ff02::2")}, r.addrs[1]...)...),
	}
	message := testutil.ICMP{Type: uint8(130 + r.IntN(14)), Rest: uint32(r.IntN(4)) << 30}
	message.Quote = append(pick(r, r.addrs[1]...).AsSlice(), append([]byte{byte(1 + r.IntN(2)), 1}, r.pod.MAC()...)...)
	p.L4, p.Payload = message, append([]byte{253, 3}, r.mark("neighbour discovery").bytes()...)
	p.Payload = append(p.Payload, make([]byte, 24-len(p.Payload))...)
	return [][]byte{p.Bytes()}
}

func (r *crafter) truncated() [][]byte {
	p := r.packet()
	p.Payload = r.mark("truncated").bytes()
	p.Truncate = 15 + r.IntN(80)
	return [][]byte{p.Bytes()}
}

// garbage is anything after an Ethernet header that says IP; the first half byte is right mostly.
func (r *crafter) garbage() [][]byte {
	b := append(append(net.HardwareAddr{}, lab.HostMAC...), r.pod.MAC()...)
	kind := pick[uint16](r, testutil.EtherIPv4, testutil.EtherIPv6)
	b = binary.BigEndian.AppendUint16(b, kind)
	body := append(r.bytes(80), r.mark("garbage").bytes()...)
	if !r.oneIn(8) {
		body[0] = body[0]&0x0f | pick[byte](r, 0x40, 0x60)
	}
	return [][]byte{append(b, body...)}
}

// mutation is a valid packet of which some bits are turned, with a right header checksum mostly.
func (r *crafter) mutation() [][]byte {
	p := r.packet()
	p.Payload = r.mark("a mutation").bytes()
	b := p.Bytes()
	end := len(b) - tokenSize
	for range 1 + r.IntN(4) {
		b[12+r.IntN(end-12)] ^= 1 << r.IntN(8)
	}
	if header := int(b[14]&15) * 4; b[14]>>4 == 4 && header >= 20 && len(b) >= 14+header && !r.oneIn(8) {
		b[24], b[25] = 0, 0
		binary.BigEndian.PutUint16(b[24:], headerSum(b[14:14+header]))
	}
	return [][]byte{b}
}

// headerSum is the checksum of an IPv4 header whose own field is 0.
func headerSum(header []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(header); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(header[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
