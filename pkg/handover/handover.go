// Package handover carries flows from the table of one dataplane to that of the other, when an agent in one mode comes after one in
// the other. A flow that is carried over keeps its direction, who opened it, and is judged by the policy in force with its next
// packet: an entry that a pod has brought about is worth no more than the packet that it stands for.
//
//   - tobpf.go: an entry of the kernel's table as flows of BPF maps; pure
//   - tokernel.go: flows of BPF maps as entries of the kernel's table; pure
//   - carry.go: both, with the tables
package handover

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/conntrack"
)

// Place is what the node knows of an address.
type Place struct {
	Interface uint32 // of the endpoint of this node whose address it is; 0: it is none's
	Node      bool   // it is the node's own
}

// Mark is what the mark of a connection says, that an iptables dataplane has judged.
type Mark struct {
	Judged  bool // policy has allowed it, of some generation
	Allowed bool // policy in force has
	Denied  bool // policy in force has revoked it
	Turned  bool // the first packet on record was an answer
}

// Bits of flows.
const (
	replied    = uint8(bpf.MargayCtStateCT_REPLIED)
	open       = uint8(bpf.MargayCtStateCT_OPEN)
	fins       = uint8(bpf.MargayCtStateCT_FIN_OPENER | bpf.MargayCtStateCT_FIN_REPLY)
	rst        = uint8(bpf.MargayCtStateCT_RST)
	revoked    = uint8(bpf.MargayCtStateCT_REVOKED)
	oneWay     = uint8(bpf.MargayCtStateCT_ONE_WAY)
	fromHost   = uint8(bpf.MargayCtFlagsCT_FROM_HOST)
	self       = uint8(bpf.MargayCtFlagsCT_SELF)
	translated = uint8(bpf.MargayCtFlagsCT_TRANSLATED)
	midflow    = uint8(bpf.MargayCtFlagsCT_MIDFLOW)
)

// Types of ICMP.
const (
	echo4, echo6 = 8, 128
)

// protocolUDPLite has ports that conntrack does not follow.
const protocolUDPLite = 136

// isICMP reports whether a protocol is that of echo requests of the family.
func isICMP(protocol uint8, v6 bool) bool {
	return protocol == unix.IPPROTO_ICMP && !v6 || protocol == unix.IPPROTO_ICMPV6 && v6
}

func hasPorts(protocol uint8) bool {
	return protocol == unix.IPPROTO_TCP || protocol == unix.IPPROTO_UDP || protocol == unix.IPPROTO_SCTP
}

// swapped is a tuple with its ends exchanged.
func swapped(t conntrack.Tuple) conntrack.Tuple {
	t.Src, t.Dst, t.SrcPort, t.DstPort = t.Dst, t.Src, t.DstPort, t.SrcPort
	return t
}

// ends are the ends of a tuple, as flows of BPF maps have them; not ok: such packets make no flow there.
func ends(t conntrack.Tuple) (src, dst netip.AddrPort, ok bool) {
	v6 := t.Src.Is6()
	switch {
	case !t.Src.IsValid() || t.Src.BitLen() != t.Dst.BitLen():
		return src, dst, false
	case hasPorts(t.Protocol):
		return netip.AddrPortFrom(t.Src, t.SrcPort), netip.AddrPortFrom(t.Dst, t.DstPort), true
	case isICMP(t.Protocol, v6):
		// The identifier, and one more at the end that answers.
		return netip.AddrPortFrom(t.Src, t.ICMPID), netip.AddrPortFrom(t.Dst, t.ICMPID+1), t.ICMPType == echo4 && !v6 || t.ICMPType == echo6 && v6
	case t.Protocol == unix.IPPROTO_ICMP || t.Protocol == unix.IPPROTO_ICMPV6:
		return src, dst, false
	}
	return netip.AddrPortFrom(t.Src, 0), netip.AddrPortFrom(t.Dst, 0), true
}
