package handover

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/dataplane"
)

// tupleOf are the packets of a flow's opener, as the kernel's table has them; not ok: it has no such flows, or they cannot be added.
func tupleOf(f *bpfmaps.Flow) (t conntrack.Tuple, ok bool) {
	opener, responder := f.Ends()
	t = conntrack.Tuple{Src: opener.Addr(), Dst: responder.Addr(), Protocol: f.Proto}
	switch f.Proto {
	case unix.IPPROTO_TCP, unix.IPPROTO_UDP:
		t.SrcPort, t.DstPort = opener.Port(), responder.Port()
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		t.ICMPID, t.ICMPType = opener.Port(), echo4
		if t.Src.Is6() {
			t.ICMPType = echo6
		}
		return t, isICMP(f.Proto, t.Src.Is6()) && f.Entry.L4 == uint16(t.ICMPType)<<8
	case unix.IPPROTO_SCTP, unix.IPPROTO_DCCP, unix.IPPROTO_GRE, protocolUDPLite:
		return t, false // what the kernel remembers of them is not in a flow
	}
	return t, true
}

// wanted is what the kernel's table is to know of a flow.
type wanted struct {
	insert  bool // if the kernel does not know it: its addresses are not translated
	guessed bool // who opened it is a guess
	allowed [2]bool
	timeout time.Duration
}

// want says what the kernel is to know of a flow.
func want(f *bpfmaps.Flow, t dataplane.Timeouts) (w wanted, ok bool) {
	e := &f.Entry
	if e.State&rst != 0 || e.Flags&self != 0 {
		return w, false
	}
	return wanted{
		insert: e.Flags&translated == 0, guessed: e.Flags&midflow != 0,
		allowed: [2]bool{e.Egress != 0 && e.State&revoked == 0, (e.Ingress != 0 || e.Flags&fromHost != 0) && e.State&revoked == 0},
		timeout: timeoutOf(f, t),
	}, true
}

// timeoutOf is how long a flow lasts without packets.
func timeoutOf(f *bpfmaps.Flow, t dataplane.Timeouts) time.Duration {
	switch {
	case f.Proto == unix.IPPROTO_UDP:
		return t.UDP
	case f.Proto == unix.IPPROTO_ICMP || f.Proto == unix.IPPROTO_ICMPV6:
		return t.ICMP
	case f.Proto != unix.IPPROTO_TCP:
		return t.Other
	case f.Entry.State&fins == fins || f.Entry.State&revoked != 0:
		return t.TCPFin
	case f.Entry.State&open != 0 || f.Entry.Flags&midflow != 0:
		return t.TCPEstablished
	}
	return t.TCPSyn
}
