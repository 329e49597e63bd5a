package conntrack

import (
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/nfnl"
)

const (
	subsystem = 1 // NFNL_SUBSYS_CTNETLINK

	commandNew      = 0
	commandGet      = 1
	commandDelete   = 2
	commandGetStats = 5
)

// Attributes of an entry (enum ctattr_type).
const (
	attrOriginal        = 1
	attrReply           = 2
	attrStatus          = 3
	attrProtocolInfo    = 4
	attrTimeout         = 7
	attrMark            = 8
	attrCountOriginal   = 9
	attrCountReply      = 10
	attrID              = 12
	attrZone            = 18
	attrMarkMask        = 21
	attrCountPackets    = 1
	attrCountBytes      = 2
	attrStatsEntries    = 1
	attrStatsMaxEntries = 2
)

// Attributes of a tuple, and in it of addresses and protocol.
const (
	attrTupleIP    = 1
	attrTupleProto = 2

	attrSrc4 = 1
	attrDst4 = 2
	attrSrc6 = 3
	attrDst6 = 4

	attrProtocol   = 1
	attrSrcPort    = 2
	attrDstPort    = 3
	attrICMPID     = 4
	attrICMPType   = 5
	attrICMPCode   = 6
	attrICMPv6ID   = 7
	attrICMPv6Type = 8
	attrICMPv6Code = 9
)

// Attributes inside attrProtocolInfo, and inside TCP's.
const (
	attrInfoTCP          = 1
	attrTCPState         = 1
	attrTCPFlagsOriginal = 4
	attrTCPFlagsReply    = 5
)

// pickedUp are the flags of TCP that the kernel sets for a connection whose beginning it has not seen: SACK is assumed, and sequence
// numbers are not checked against windows, since their scale is unknown.
const (
	pickedUp  = 0x02 | beLiberal
	beLiberal = 0x08
)

// liberal reports whether flags of TCP, with their mask, say that windows are not checked.
func liberal(flags []byte) bool { return len(flags) > 0 && flags[0]&beLiberal != 0 }

func appendTuple(to *nfnl.Encoder, kind uint16, t Tuple) {
	tuple := to.Nest(kind)
	ip := to.Nest(attrTupleIP)
	if t.Src.Is4() {
		src, dst := t.Src.As4(), t.Dst.As4()
		to.Raw(attrSrc4, src[:])
		to.Raw(attrDst4, dst[:])
	} else {
		src, dst := t.Src.As16(), t.Dst.As16()
		to.Raw(attrSrc6, src[:])
		to.Raw(attrDst6, dst[:])
	}
	to.End(ip)
	proto := to.Nest(attrTupleProto)
	to.Uint8(attrProtocol, t.Protocol)
	switch t.Protocol {
	case unix.IPPROTO_ICMP:
		to.Uint16(attrICMPID, t.ICMPID)
		to.Uint8(attrICMPType, t.ICMPType)
		to.Uint8(attrICMPCode, t.ICMPCode)
	case unix.IPPROTO_ICMPV6:
		to.Uint16(attrICMPv6ID, t.ICMPID)
		to.Uint8(attrICMPv6Type, t.ICMPType)
		to.Uint8(attrICMPv6Code, t.ICMPCode)
	default:
		to.Uint16(attrSrcPort, t.SrcPort)
		to.Uint16(attrDstPort, t.DstPort)
	}
	to.End(proto)
	to.End(tuple)
}

func tuple(b []byte) Tuple {
	var t Tuple
	for kind, payload := range nfnl.Attributes(nfnl.Find(b, attrTupleIP)) {
		a, _ := netip.AddrFromSlice(payload) // another length: the zero address
		switch kind {
		case attrSrc4, attrSrc6:
			t.Src = a
		case attrDst4, attrDst6:
			t.Dst = a
		}
	}
	for kind, payload := range nfnl.Attributes(nfnl.Find(b, attrTupleProto)) {
		switch kind {
		case attrProtocol:
			t.Protocol = nfnl.Uint8(payload)
		case attrSrcPort:
			t.SrcPort = nfnl.Uint16(payload)
		case attrDstPort:
			t.DstPort = nfnl.Uint16(payload)
		case attrICMPID, attrICMPv6ID:
			t.ICMPID = nfnl.Uint16(payload)
		case attrICMPType, attrICMPv6Type:
			t.ICMPType = nfnl.Uint8(payload)
		case attrICMPCode, attrICMPv6Code:
			t.ICMPCode = nfnl.Uint8(payload)
		}
	}
	return t
}

// entry reads one message of a dump.
func entry(b []byte) Entry {
	var e Entry
	for kind, payload := range nfnl.Attributes(b) {
		switch kind {
		case attrOriginal:
			e.Original = tuple(payload)
		case attrReply:
			e.Reply = tuple(payload)
		case attrStatus:
			e.Status = Status(nfnl.Uint32(payload))
		case attrProtocolInfo:
			tcp := nfnl.Find(payload, attrInfoTCP)
			e.TCPState = nfnl.Uint8(nfnl.Find(tcp, attrTCPState))
			e.PickedUp = liberal(nfnl.Find(tcp, attrTCPFlagsOriginal)) && liberal(nfnl.Find(tcp, attrTCPFlagsReply))
		case attrTimeout:
			e.Timeout = time.Duration(nfnl.Uint32(payload)) * time.Second
		case attrMark:
			e.Mark = nfnl.Uint32(payload)
		case attrCountOriginal, attrCountReply:
			direction := int(kind - attrCountOriginal)
			e.Packets[direction] = nfnl.Uint64(nfnl.Find(payload, attrCountPackets))
			e.Bytes[direction] = nfnl.Uint64(nfnl.Find(payload, attrCountBytes))
		case attrID:
			e.ID = nfnl.Uint32(payload)
		case attrZone:
			e.Zone = nfnl.Uint16(payload)
		}
	}
	return e
}

// swapped returns the reply direction of a tuple without translation; false: an ICMP message of this type opens no connection.
func (t Tuple) swapped() (Tuple, bool) {
	r := t
	r.Src, r.Dst, r.SrcPort, r.DstPort = t.Dst, t.Src, t.DstPort, t.SrcPort
	replies := map[uint8]uint8{8: 0, 13: 14, 15: 16, 17: 18}
	if t.Protocol == unix.IPPROTO_ICMPV6 {
		replies = map[uint8]uint8{128: 129, 139: 140}
	}
	if t.Protocol != unix.IPPROTO_ICMP && t.Protocol != unix.IPPROTO_ICMPV6 {
		return r, true
	}
	answer, ok := replies[t.ICMPType]
	r.ICMPType = answer
	return r, ok
}
