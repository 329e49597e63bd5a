package traffic

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	tcpFIN = 0x01
	tcpSYN = 0x02
	tcpRST = 0x04
	tcpACK = 0x10

	etherLength = 14
)

// segment identifies a TCP segment by what address translation on its way leaves as it is.
type segment struct {
	toServer bool
	seq, ack uint32
	flags    uint8
	length   int    // of its data
	rest     uint64 // a hash of window, options and data
}

// bare reports whether it is an ACK, FIN or reset without data.
func (s segment) bare() bool { return s.flags&tcpSYN == 0 && s.length == 0 }

func (s segment) String() string {
	what := "data"
	switch {
	case s.flags&(tcpSYN|tcpACK) == tcpSYN:
		what = "SYN"
	case s.flags&tcpSYN != 0:
		what = "SYN and ACK"
	case s.length > 0:
	case s.flags&tcpRST != 0:
		what = "reset"
	case s.flags&tcpFIN != 0:
		what = "FIN"
	default:
		what = "ACK"
	}
	return fmt.Sprintf("%s with sequence number %d, %d bytes", what, s.seq, s.length)
}

var segmentSeed = maphash.MakeSeed()

// segmentOf reads an Ethernet frame with a whole TCP segment, without VLAN tags, extension headers or fragments; ok is false of others.
func segmentOf(frame []byte) (s segment, src, dst netip.AddrPort, ok bool) {
	if len(frame) < etherLength+20 {
		return s, src, dst, false
	}
	ip := frame[etherLength:]
	var from, to netip.Addr
	var header, total int
	switch binary.BigEndian.Uint16(frame[12:]) {
	case unix.ETH_P_IP:
		header, total = int(ip[0]&15)*4, int(binary.BigEndian.Uint16(ip[2:]))
		from, to = netip.AddrFrom4([4]byte(ip[12:16])), netip.AddrFrom4([4]byte(ip[16:20]))
		ok = ip[9] == unix.IPPROTO_TCP && binary.BigEndian.Uint16(ip[6:])&0x3fff == 0
	case unix.ETH_P_IPV6:
		if len(ip) < 40 {
			return s, src, dst, false
		}
		header, total = 40, 40+int(binary.BigEndian.Uint16(ip[4:]))
		from, to = netip.AddrFrom16([16]byte(ip[8:24])), netip.AddrFrom16([16]byte(ip[24:40]))
		ok = ip[6] == unix.IPPROTO_TCP
	}
	if !ok || total > len(ip) || total < header+20 {
		return s, src, dst, false
	}
	tcp := ip[header:total]
	data := int(tcp[12]>>4) * 4
	if data < 20 || data > len(tcp) {
		return s, src, dst, false
	}
	src = netip.AddrPortFrom(from, binary.BigEndian.Uint16(tcp))
	dst = netip.AddrPortFrom(to, binary.BigEndian.Uint16(tcp[2:]))
	var h maphash.Hash
	h.SetSeed(segmentSeed)
	_, _ = h.Write(tcp[14:16]) // the checksum behind it may be unfinished where the segment leaves; never fails
	_, _ = h.Write(tcp[18:])
	s = segment{seq: binary.BigEndian.Uint32(tcp[4:]), ack: binary.BigEndian.Uint32(tcp[8:]), flags: tcp[13], length: len(tcp) - data, rest: h.Sum64()}
	return s, src, dst, true
}

// onlyTCP has a packet socket receive TCP frames only, without VLAN tags and extension headers.
func onlyTCP(fd int) error {
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: 12},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 3, K: unix.ETH_P_IP},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 5, K: unix.ETH_P_IPV6},
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: etherLength + 6},
		{Code: unix.BPF_JMP | unix.BPF_JA, K: 1},
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: etherLength + 9},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.IPPROTO_TCP},
		{Code: unix.BPF_RET | unix.BPF_K, K: 1 << 17},
		{Code: unix.BPF_RET | unix.BPF_K},
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: unsafe.SliceData(program)})
}
