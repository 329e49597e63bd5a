// Package handover carries flows from the table of one dataplane to that of the other, when an agent starts in another mode than its
// predecessor. A flow that is carried over keeps its opener, and its next packet is judged by the policy in force: an entry that a
// pod has caused gives it no more than the packet would.
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

// Place describes the owner of an address.
type Place struct {
	Interface uint32 // ifindex of the endpoint of this node that has the address; 0: no endpoint has it
	Node      bool   // the node itself has the address
}

// Mark is the judgement in the mark of a connection, by an iptables dataplane.
type Mark struct {
	Judged  bool // policy of some generation has allowed the connection
	Allowed bool // policy in force has allowed it
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
	shortcut   = uint8(bpf.MargayCtFlagsCT_SHORTCUT)
)

// Types of ICMP.
const (
	echo4, echo6 = 8, 128
)

// protocolUDPLite has ports that conntrack does not follow.
const protocolUDPLite = 136

// isICMP reports whether a protocol is the ICMP of the IP version.
func isICMP(protocol uint8, v6 bool) bool {
	return protocol == unix.IPPROTO_ICMP && !v6 || protocol == unix.IPPROTO_ICMPV6 && v6
}

func hasPorts(protocol uint8) bool {
	return protocol == unix.IPPROTO_TCP || protocol == unix.IPPROTO_UDP || protocol == unix.IPPROTO_SCTP
}

// swapped returns a tuple with its ends exchanged.
func swapped(t conntrack.Tuple) conntrack.Tuple {
	t.Src, t.Dst, t.SrcPort, t.DstPort = t.Dst, t.Src, t.DstPort, t.SrcPort
	return t
}

// ends returns the ends of a tuple as in keys of BPF maps; not ok: such packets make no flow there.
func ends(t conntrack.Tuple) (src, dst netip.AddrPort, ok bool) {
	v6 := t.Src.Is6()
	switch {
	case !t.Src.IsValid() || t.Src.BitLen() != t.Dst.BitLen():
		return src, dst, false
	case hasPorts(t.Protocol):
		return netip.AddrPortFrom(t.Src, t.SrcPort), netip.AddrPortFrom(t.Dst, t.DstPort), true
	case isICMP(t.Protocol, v6):
		// In the place of ports: the identifier at the end that asks, and the identifier plus one at the end that answers.
		return netip.AddrPortFrom(t.Src, t.ICMPID), netip.AddrPortFrom(t.Dst, t.ICMPID+1), t.ICMPType == echo4 && !v6 || t.ICMPType == echo6 && v6
	case t.Protocol == unix.IPPROTO_ICMP || t.Protocol == unix.IPPROTO_ICMPV6:
		return src, dst, false
	}
	return netip.AddrPortFrom(t.Src, 0), netip.AddrPortFrom(t.Dst, 0), true
}
