package testutil

import (
	"encoding/binary"
	"hash/crc32"
	"net/netip"
)

// TCP flags.
const (
	FIN uint8 = 1 << iota
	SYN
	RST
	PSH
	ACK
	URG
	ECE
	CWR
)

// TCP is a TCP header.
type TCP struct {
	SrcPort, DstPort uint16
	Seq, Ack         uint32
	Flags            uint8
	Window           uint16 // default 65535
	Options          []byte // padded to a multiple of 4
	DataOffset       uint8  // overrides the header length, in 32-bit words
	BadChecksum      bool
}

func (TCP) protocol(bool) uint8 { return ProtoTCP }

func (h TCP) encode(src, dst netip.Addr, payload []byte) []byte {
	options := pad(h.Options, 4)
	b := make([]byte, 20, 20+len(options)+len(payload))
	binary.BigEndian.PutUint16(b, h.SrcPort)
	binary.BigEndian.PutUint16(b[2:], h.DstPort)
	binary.BigEndian.PutUint32(b[4:], h.Seq)
	binary.BigEndian.PutUint32(b[8:], h.Ack)
	words := h.DataOffset
	if words == 0 {
		words = uint8(5 + len(options)/4)
	}
	b[12], b[13] = words<<4, h.Flags
	window := h.Window
	if window == 0 {
		window = 65535
	}
	binary.BigEndian.PutUint16(b[14:], window)
	b = append(append(b, options...), payload...)
	sum := transportChecksum(src, dst, ProtoTCP, b)
	if h.BadChecksum {
		sum ^= 0x5555
	}
	binary.BigEndian.PutUint16(b[16:], sum)
	return b
}

// UDP is a UDP header; with Lite set a UDP-Lite one that covers the whole packet.
type UDP struct {
	SrcPort, DstPort uint16
	Lite             bool
	NoChecksum       bool // IPv4 only
}

func (h UDP) protocol(bool) uint8 {
	if h.Lite {
		return ProtoUDPLite
	}
	return ProtoUDP
}

func (h UDP) encode(src, dst netip.Addr, payload []byte) []byte {
	b := make([]byte, 8, 8+len(payload))
	binary.BigEndian.PutUint16(b, h.SrcPort)
	binary.BigEndian.PutUint16(b[2:], h.DstPort)
	if !h.Lite {
		binary.BigEndian.PutUint16(b[4:], uint16(8+len(payload)))
	}
	b = append(b, payload...)
	if h.NoChecksum {
		return b
	}
	sum := transportChecksum(src, dst, h.protocol(false), b)
	if sum == 0 {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(b[6:], sum)
	return b
}

// SCTP is an SCTP common header; the payload is its chunks. Without one, an INIT chunk is added.
type SCTP struct {
	SrcPort, DstPort uint16
	Tag              uint32
}

func (SCTP) protocol(bool) uint8 { return ProtoSCTP }

func (h SCTP) encode(_, _ netip.Addr, payload []byte) []byte {
	if payload == nil {
		payload = sctpInit()
	}
	b := make([]byte, 12, 12+len(payload))
	binary.BigEndian.PutUint16(b, h.SrcPort)
	binary.BigEndian.PutUint16(b[2:], h.DstPort)
	binary.BigEndian.PutUint32(b[4:], h.Tag)
	b = append(b, payload...)
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	return b
}

func sctpInit() []byte {
	c := make([]byte, 20)
	c[0] = 1 // INIT
	binary.BigEndian.PutUint16(c[2:], uint16(len(c)))
	binary.BigEndian.PutUint32(c[4:], 0x01020304) // initiate tag
	binary.BigEndian.PutUint32(c[8:], 65536)      // receiver window
	binary.BigEndian.PutUint16(c[12:], 1)         // outbound streams
	binary.BigEndian.PutUint16(c[14:], 1)         // inbound streams
	binary.BigEndian.PutUint32(c[16:], 1)         // initial TSN
	return c
}

// ICMP is an ICMP header, or an ICMPv6 one in an IPv6 packet. ID and Seq are those of an echo; Rest, if not 0, takes
// their place (the MTU of packet-too-big, the pointer of a parameter problem).
type ICMP struct {
	Type, Code uint8
	ID, Seq    uint16
	Rest       uint32
	Quote      []byte // what an error quotes, before the payload: see Quoting
}

func (ICMP) protocol(v6 bool) uint8 {
	if v6 {
		return ProtoICMPv6
	}
	return ProtoICMP
}

func (h ICMP) encode(src, dst netip.Addr, payload []byte) []byte {
	rest := h.Rest
	if rest == 0 {
		rest = uint32(h.ID)<<16 | uint32(h.Seq)
	}
	b := []byte{h.Type, h.Code, 0, 0}
	b = binary.BigEndian.AppendUint32(b, rest)
	b = append(append(b, h.Quote...), payload...)
	sum := checksum(b)
	if src.Is6() {
		sum = transportChecksum(src, dst, ProtoICMPv6, b)
	}
	binary.BigEndian.PutUint16(b[2:], sum)
	return b
}

// Quoting returns what an ICMP error about the packet quotes: for IPv4 the IP header and 8 bytes, as RFC 792 asks; for
// IPv6 as much as fits the minimum MTU.
func Quoting(p Packet) []byte {
	b := p.IP()
	if p.Src.Is6() {
		return b[:min(len(b), 1280-40-8)]
	}
	return b[:min(len(b), 20+len(pad(p.Options, 4))+8)]
}

// Raw is a transport of another protocol: the payload is all there is.
type Raw uint8

func (r Raw) protocol(bool) uint8 { return uint8(r) }

func (r Raw) encode(_, _ netip.Addr, payload []byte) []byte { return payload }

// transportChecksum covers the pseudo header of the family and b, whose checksum field must be 0.
func transportChecksum(src, dst netip.Addr, protocol uint8, b []byte) uint16 {
	pseudo := append(src.AsSlice(), dst.AsSlice()...)
	pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(len(b)))
	pseudo = append(pseudo, 0, 0, 0, protocol) // summing the same for IPv4's shorter layout
	return checksum(append(pseudo, b...))
}

// checksum is the Internet checksum of RFC 1071.
func checksum(b []byte) uint16 {
	var sum uint32
	for ; len(b) >= 2; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
