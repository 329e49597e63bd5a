// Package ipheader finds what is behind the IP header of a packet, which may be cut off.
package ipheader

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"
)

// ErrMalformed means that the bytes are not the beginning of an IP packet, or that they end before its transport header.
var ErrMalformed = errors.New("not the beginning of an IP packet")

// Packet is one IP packet, whole or a first fragment.
type Packet struct {
	Src, Dst  netip.Addr
	Protocol  uint8  // of the transport: behind the extension headers of IPv6
	Transport []byte // from the transport header on, as far as there are bytes
	Length    int    // of the transport in the packet, if not cut off
	Later     bool   // a fragment that is not the first: Transport is not its header
}

// Parse reads the headers of a packet.
func Parse(b []byte) (Packet, error) {
	switch {
	case len(b) >= 20 && b[0]>>4 == 4:
		return parse4(b)
	case len(b) >= 40 && b[0]>>4 == 6:
		return parse6(b)
	}
	return Packet{}, ErrMalformed
}

func parse4(b []byte) (Packet, error) {
	header, total := int(b[0]&15)*4, int(binary.BigEndian.Uint16(b[2:]))
	if header < 20 || header > len(b) || total < header {
		return Packet{}, ErrMalformed
	}
	return Packet{
		Src: netip.AddrFrom4([4]byte(b[12:])), Dst: netip.AddrFrom4([4]byte(b[16:])), Protocol: b[9],
		Transport: b[header:min(len(b), total)], Length: total - header, Later: binary.BigEndian.Uint16(b[6:])&0x1fff != 0,
	}, nil
}

func parse6(b []byte) (Packet, error) {
	p := Packet{Src: netip.AddrFrom16([16]byte(b[8:])), Dst: netip.AddrFrom16([16]byte(b[24:])), Protocol: b[6]}
	total := 40 + int(binary.BigEndian.Uint16(b[4:]))
	at := 40
	for extends(p.Protocol) && !p.Later {
		if at+8 > len(b) {
			return Packet{}, ErrMalformed
		}
		size := 8
		switch p.Protocol {
		case unix.IPPROTO_FRAGMENT:
			p.Later = binary.BigEndian.Uint16(b[at+2:])&0xfff8 != 0
		case unix.IPPROTO_AH:
			size += int(b[at+1]) * 4
		default:
			size += int(b[at+1]) * 8
		}
		p.Protocol, at = b[at], at+size
	}
	if at > len(b) || at > total {
		return Packet{}, ErrMalformed
	}
	p.Transport, p.Length = b[at:min(len(b), total)], total-at
	return p, nil
}

// extends reports whether an IPv6 header of this number is followed by another one.
func extends(header uint8) bool {
	switch header {
	case unix.IPPROTO_HOPOPTS, unix.IPPROTO_ROUTING, unix.IPPROTO_DSTOPTS, unix.IPPROTO_FRAGMENT, unix.IPPROTO_AH:
		return true
	}
	return false
}
