package hostile

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/model"
)

// dissected is an IP packet as its receiver reads it. It shares no code with the datapath's parser and is naive: all
// extension headers that Linux walks are walked, however many.
type dissected struct {
	model.Packet
	id       uint32 // of fragments
	fragment bool
	later    bool   // a fragment that has no transport header
	quoted   bool   // it is what an ICMP error quotes, of whose transport 8 bytes are enough (RFC 792)
	source   bool   // IPv6: it is routed by its source; segments are left
	flags    uint8  // TCP
	body     []byte // after the transport header of ICMP
	offset   int    // of a fragment
	payload  []byte // after the headers of IP
}

var (
	errNotIP = errors.New("it is no IP packet")
	errShort = errors.New("it ends before its headers do")
)

// dissect reads a packet from its IP header on.
func dissect(b []byte) (d dissected, err error) {
	err = d.network(b)
	return d, err
}

// dissectQuoted reads the packet that an ICMP error quotes.
func dissectQuoted(b []byte) (d dissected, err error) {
	d.quoted = true
	err = d.network(b)
	return d, err
}

func (d *dissected) network(b []byte) error {
	if len(b) == 0 {
		return errShort
	}
	switch b[0] >> 4 {
	case 4:
		return d.network4(b)
	case 6:
		return d.network6(b)
	}
	return errNotIP
}

func (d *dissected) network4(b []byte) error {
	header := int(b[0]&15) * 4
	if header < 20 || len(b) < header {
		return errShort
	}
	d.Src, _ = netip.AddrFromSlice(b[12:16])
	d.Dst, _ = netip.AddrFromSlice(b[16:20])
	d.Protocol = b[9]
	flags := binary.BigEndian.Uint16(b[6:])
	d.fragment, d.later = flags&0x3fff != 0, flags&0x1fff != 0
	d.offset = int(flags&0x1fff) * 8
	d.id = uint32(binary.BigEndian.Uint16(b[4:]))
	end := min(len(b), max(header, int(binary.BigEndian.Uint16(b[2:]))))
	return d.transport(b[header:end])
}

func (d *dissected) network6(b []byte) error {
	if len(b) < 40 {
		return errShort
	}
	d.Src, _ = netip.AddrFromSlice(b[8:24])
	d.Dst, _ = netip.AddrFromSlice(b[24:40])
	next := b[6]
	b = b[40:min(len(b), 40+int(binary.BigEndian.Uint16(b[4:])))]
	for slices.Contains([]uint8{0, 43, 44, 51, 60}, next) && !d.later {
		if len(b) < 8 {
			return errShort
		}
		size := (int(b[1]) + 1) * 8
		switch next {
		case 43:
			d.source = d.source || b[3] != 0
		case 44:
			size = 8
			offset := binary.BigEndian.Uint16(b[2:])
			d.fragment, d.later = d.fragment || offset&0xfff9 != 0, offset&0xfff8 != 0
			d.offset, d.id = int(offset&0xfff8), binary.BigEndian.Uint32(b[4:])
		case 51:
			size = (int(b[1]) + 2) * 4
		}
		next = b[0]
		if len(b) < size {
			d.Protocol = next
			return errShort
		}
		b = b[size:]
	}
	d.Protocol = next
	return d.transport(b)
}

func (d *dissected) transport(b []byte) error {
	d.payload = b
	if d.later {
		return nil
	}
	switch {
	case d.Protocol == testutil.ProtoTCP && !d.quoted:
		if len(b) < 20 {
			return errShort
		}
		d.flags = b[13]
		fallthrough
	case model.HasPorts(d.Protocol):
		if len(b) < 8 {
			return errShort
		}
		d.SrcPort, d.DstPort = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	case d.isICMP():
		if len(b) < 8 {
			return errShort
		}
		d.ICMPType, d.ICMPCode, d.body = b[0], b[1], b[8:]
	}
	return nil
}

func (d *dissected) isICMP() bool {
	return d.Protocol == unix.IPPROTO_ICMP && d.Src.Is4() || d.Protocol == unix.IPPROTO_ICMPV6 && d.Src.Is6()
}

// isError reports whether it is an ICMP message about another packet, which it quotes.
func (d *dissected) isError() bool {
	if !d.isICMP() || d.later {
		return false
	}
	if d.Src.Is6() {
		return d.ICMPType < 128 // RFC 4443, 2.1
	}
	return slices.Contains([]uint8{3, 4, 5, 11, 12}, d.ICMPType)
}

// isNeighbour reports whether it is neighbour or listener discovery to a link-local address or group (semantics §15).
func (d *dissected) isNeighbour() bool {
	return d.isICMP() && d.Src.Is6() && slices.Contains([]uint8{130, 131, 132, 133, 135, 136, 143}, d.ICMPType) &&
		(d.Dst.IsLinkLocalUnicast() || d.Dst.IsLinkLocalMulticast())
}

// isTunnel reports whether it carries packets of somebody else.
func (d *dissected) isTunnel() bool {
	switch d.Protocol {
	case unix.IPPROTO_IPIP, unix.IPPROTO_IPV6, unix.IPPROTO_GRE:
		return true
	case unix.IPPROTO_UDP:
		return !d.later && slices.Contains([]uint16{4789, 8472, 6081}, d.DstPort)
	}
	return false
}

// isAbsurd reports whether its TCP flags make no sense together.
func (d *dissected) isAbsurd() bool {
	if d.Protocol != unix.IPPROTO_TCP || d.later || d.quoted {
		return false
	}
	f := d.flags & (testutil.FIN | testutil.SYN | testutil.RST | testutil.ACK)
	return f == 0 || f&testutil.SYN != 0 && f&(testutil.FIN|testutil.RST) != 0
}

// turned is the tuple of the answer.
func turned(p model.Packet) model.Packet {
	p.Src, p.Dst, p.SrcPort, p.DstPort = p.Dst, p.Src, p.DstPort, p.SrcPort
	return p
}
