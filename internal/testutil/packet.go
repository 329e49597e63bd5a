package testutil

import (
	"encoding/binary"
	"net"
	"net/netip"
)

// IP protocol numbers, as far as the builder knows the headers.
const (
	ProtoICMP     = 1
	ProtoTCP      = 6
	ProtoUDP      = 17
	ProtoFragment = 44
	ProtoICMPv6   = 58
	ProtoSCTP     = 132
	ProtoUDPLite  = 136
)

// EtherTypes.
const (
	EtherIPv4 = 0x0800
	EtherARP  = 0x0806
	EtherIPv6 = 0x86dd
)

// Packet describes one Ethernet frame; Bytes builds it with lengths and checksums filled in. The family is that of Src.
// The zero value of every other field is a sensible default, so a SYN is
//
//	testutil.Packet{
//		Src: netip.MustParseAddr("10.65.0.2"), Dst: netip.MustParseAddr("10.65.0.3"),
//		L4: testutil.TCP{SrcPort: 40000, DstPort: 80, Flags: testutil.SYN},
//	}.Bytes()
//
// or, shorter, testutil.FromTo("10.65.0.2", "10.65.0.3", testutil.TCP{...}).Bytes(). Values are copied freely, so a
// variant is p := base; p.TTL = 1.
type Packet struct {
	DstMAC, SrcMAC net.HardwareAddr // default 02:00:00:00:00:02 and :01
	EtherType      uint16           // default by family
	VLAN           uint16           // 0: no tag; otherwise an 802.1Q tag with this TCI

	Src, Dst netip.Addr
	TTL      uint8 // hop limit; default 64
	TOS      uint8 // traffic class

	Options    []byte      // IPv4 options, padded to a multiple of 4 with end-of-list
	Extensions []Extension // IPv6 extension headers, in order, before any fragment header

	ID           uint32 // IPv4 (low 16 bits) or IPv6 fragment identification
	DontFragment bool   // IPv4
	// A packet with MoreFragments or FragmentOffset is a fragment; with either, or Fragmented set, IPv6 has a fragment
	// header. Offset is in bytes, a multiple of 8. Fragments(p, ...) cuts a whole packet.
	FragmentOffset uint16
	MoreFragments  bool
	Fragmented     bool

	L4       Layer4
	Payload  []byte // after the L4 header
	Protocol uint8  // overrides L4's own number

	Truncate int // if above 0, the frame is cut to this many bytes after everything is built
}

// Extension is an IPv6 extension header.
type Extension struct {
	Header uint8  // its number: 0 hop-by-hop, 43 routing, 60 destination options, 51 AH (in units of 4)
	Body   []byte // what follows next-header and length, padded with zeros to the header's unit
}

// Layer4 is a transport header: TCP, UDP, SCTP, ICMP or Raw.
type Layer4 interface {
	// protocol is the IP protocol number in the family.
	protocol(v6 bool) uint8
	// encode returns header and payload with the checksum filled in.
	encode(src, dst netip.Addr, payload []byte) []byte
}

// FromTo is a Packet with source, destination (both must parse) and transport header.
func FromTo(src, dst string, l4 Layer4) Packet {
	return Packet{Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst), L4: l4}
}

// Bytes builds the whole Ethernet frame.
func (p Packet) Bytes() []byte {
	b := append(mac(p.DstMAC, 2), mac(p.SrcMAC, 1)...)
	if p.VLAN != 0 {
		b = binary.BigEndian.AppendUint16(b, 0x8100)
		b = binary.BigEndian.AppendUint16(b, p.VLAN)
	}
	etherType := p.EtherType
	if etherType == 0 {
		etherType = EtherIPv4
		if p.Src.Is6() {
			etherType = EtherIPv6
		}
	}
	b = binary.BigEndian.AppendUint16(b, etherType)
	b = append(b, p.IP()...)
	if p.Truncate > 0 && p.Truncate < len(b) {
		b = b[:p.Truncate]
	}
	return b
}

// IP builds the packet from the IP header on.
func (p Packet) IP() []byte {
	if p.Src.Is6() {
		return p.ip6(p.transport())
	}
	return p.ip4(p.transport())
}

func (p Packet) transport() []byte {
	if p.L4 == nil {
		return p.Payload
	}
	return p.L4.encode(p.Src, p.Dst, p.Payload)
}

func (p Packet) protocol() uint8 {
	if p.Protocol != 0 || p.L4 == nil {
		return p.Protocol
	}
	return p.L4.protocol(p.Src.Is6())
}

func (p Packet) ttl() uint8 {
	if p.TTL == 0 {
		return 64
	}
	return p.TTL
}

func (p Packet) ip4(body []byte) []byte {
	options := pad(p.Options, 4)
	h := make([]byte, 20, 20+len(options)+len(body))
	h[0] = 4<<4 | uint8(5+len(options)/4)
	h[1] = p.TOS
	binary.BigEndian.PutUint16(h[2:], uint16(20+len(options)+len(body)))
	binary.BigEndian.PutUint16(h[4:], uint16(p.ID))
	flags := p.FragmentOffset / 8
	if p.MoreFragments {
		flags |= 0x2000
	}
	if p.DontFragment {
		flags |= 0x4000
	}
	binary.BigEndian.PutUint16(h[6:], flags)
	h[8], h[9] = p.ttl(), p.protocol()
	copy(h[12:], p.Src.AsSlice())
	copy(h[16:], p.Dst.AsSlice())
	h = append(h, options...)
	binary.BigEndian.PutUint16(h[10:], checksum(h))
	return append(h, body...)
}

func (p Packet) ip6(body []byte) []byte {
	ext := p.extensionHeaders()
	h := make([]byte, 40, 40+len(ext.bytes)+len(body))
	binary.BigEndian.PutUint32(h, 6<<28|uint32(p.TOS)<<20)
	binary.BigEndian.PutUint16(h[4:], uint16(len(ext.bytes)+len(body)))
	h[6], h[7] = ext.first, p.ttl()
	copy(h[8:], p.Src.AsSlice())
	copy(h[24:], p.Dst.AsSlice())
	return append(append(h, ext.bytes...), body...)
}

type extensionChain struct {
	first uint8 // next-header of the fixed header
	bytes []byte
}

func (p Packet) extensionHeaders() extensionChain {
	headers := p.Extensions
	if p.MoreFragments || p.FragmentOffset > 0 || p.Fragmented {
		body := make([]byte, 6)
		offset := p.FragmentOffset &^ 7
		if p.MoreFragments {
			offset |= 1
		}
		binary.BigEndian.PutUint16(body, offset)
		binary.BigEndian.PutUint32(body[2:], p.ID)
		headers = append(append([]Extension(nil), headers...), Extension{Header: ProtoFragment, Body: body})
	}
	chain := extensionChain{first: p.protocol()}
	for i := len(headers) - 1; i >= 0; i-- {
		chain.bytes = append(headers[i].encode(chain.first), chain.bytes...)
		chain.first = headers[i].Header
	}
	return chain
}

func (e Extension) encode(next uint8) []byte {
	b := pad(append([]byte{next, 0}, e.Body...), 8)
	switch e.Header {
	case ProtoFragment: // the second byte is reserved
	case 51: // AH counts in units of 4, minus 2
		b[1] = uint8(len(b)/4 - 2)
	default:
		b[1] = uint8(len(b)/8 - 1)
	}
	return b
}

// Fragments cuts the packet at multiples of size bytes of transport payload, a multiple of 8, and returns the frames
// in order. With both families the identification is p.ID.
func (p Packet) Fragments(size int) [][]byte {
	whole := p.transport()
	protocol := p.protocol()
	var frames [][]byte
	for at := 0; at < len(whole); at += size {
		part := p
		end := min(at+size, len(whole))
		part.L4, part.Payload, part.Protocol = nil, whole[at:end], protocol
		part.FragmentOffset, part.MoreFragments, part.Fragmented = uint16(at), end < len(whole), true
		frames = append(frames, part.Bytes())
	}
	return frames
}

func mac(addr net.HardwareAddr, last byte) []byte {
	if addr == nil {
		return []byte{2, 0, 0, 0, 0, last}
	}
	return append([]byte(nil), addr...)
}

func pad(b []byte, unit int) []byte {
	out := append([]byte(nil), b...)
	for len(out)%unit != 0 {
		out = append(out, 0)
	}
	return out
}
