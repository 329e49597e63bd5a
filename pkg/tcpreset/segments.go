// Package tcpreset ends TCP connections at the receiver of a packet that was not delivered. A rule can reset the sender of a packet
// (`-j REJECT --reject-with tcp-reset`). The other end would learn of it only by sending a packet itself. A Sender makes the reset
// for it from a copy of the packet.
package tcpreset

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/ipheader"
)

const (
	tcpHeaderLen = 20
	flagFIN      = 0x01
	flagSYN      = 0x02
	flagRST      = 0x04
	hopLimit     = 64
)

var errNotTCP = errors.New("not the beginning of a TCP packet")

// segment has the fields of a packet that its resets are made from.
type segment struct {
	src, dst         netip.Addr
	srcPort, dstPort uint16
	sequence         uint32
	length           int // of its sequence space: payload, SYN and FIN
}

// resets are the packets that end the connection of a segment at its receiver. A receiver accepts a reset only with exactly the
// sequence number that it expects next. That is the segment's own, or the one after it for keep-alives, which repeat the last byte.
func (s segment) resets() [][]byte {
	list := [][]byte{s.reset(s.sequence)}
	if s.length <= 1 {
		list = append(list, s.reset(s.sequence+1))
	}
	return list
}

// between is the segment with other ends.
func (s segment) between(src, dst netip.AddrPort) segment {
	s.src, s.srcPort, s.dst, s.dstPort = src.Addr(), src.Port(), dst.Addr(), dst.Port()
	return s
}

// parse reads a packet, which begins with its IP header and may be cut after the first 14 bytes of the TCP header. It is not kept.
func parse(b []byte) (segment, error) {
	p, err := ipheader.Parse(b)
	if err != nil {
		return segment{}, err
	}
	t := p.Transport
	if p.Protocol != unix.IPPROTO_TCP || p.Later || len(t) < 14 || p.Length < tcpHeaderLen {
		return segment{}, errNotTCP
	}
	s := segment{
		src: p.Src, dst: p.Dst, srcPort: binary.BigEndian.Uint16(t), dstPort: binary.BigEndian.Uint16(t[2:]),
		sequence: binary.BigEndian.Uint32(t[4:]), length: p.Length - int(t[12]>>4)*4,
	}
	for _, flag := range []byte{flagSYN, flagFIN} {
		if t[13]&flag != 0 {
			s.length++
		}
	}
	return s, nil
}

func (s segment) direction() direction {
	return direction{netip.AddrPortFrom(s.src, s.srcPort), netip.AddrPortFrom(s.dst, s.dstPort)}
}

// reset is a packet from the segment's sender to its receiver.
func (s segment) reset(sequence uint32) []byte {
	tcp := make([]byte, tcpHeaderLen)
	binary.BigEndian.PutUint16(tcp, s.srcPort)
	binary.BigEndian.PutUint16(tcp[2:], s.dstPort)
	binary.BigEndian.PutUint32(tcp[4:], sequence)
	tcp[12], tcp[13] = tcpHeaderLen/4<<4, flagRST
	binary.BigEndian.PutUint16(tcp[16:], checksum(s.src.AsSlice(), s.dst.AsSlice(), []byte{0, unix.IPPROTO_TCP, 0, tcpHeaderLen}, tcp))
	if s.src.Is4() {
		ip := []byte{0x45, 0, 0, 20 + tcpHeaderLen, 0, 0, 0x40, 0, hopLimit, unix.IPPROTO_TCP, 0, 0}
		ip = append(append(ip, s.src.AsSlice()...), s.dst.AsSlice()...)
		binary.BigEndian.PutUint16(ip[10:], checksum(ip))
		return append(ip, tcp...)
	}
	ip := []byte{0x60, 0, 0, 0, 0, tcpHeaderLen, unix.IPPROTO_TCP, hopLimit}
	return append(append(append(ip, s.src.AsSlice()...), s.dst.AsSlice()...), tcp...)
}

// checksum is the Internet checksum of parts of even length.
func checksum(parts ...[]byte) uint16 {
	sum := uint32(0)
	for _, p := range parts {
		for i := 0; i+1 < len(p); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(p[i:]))
		}
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
