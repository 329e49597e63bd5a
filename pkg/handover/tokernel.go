package handover

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/dataplane"
)

// tupleOf returns the tuple of the opener's packets in the kernel's table; not ok: the table has no such flows, or they cannot be
// added.
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
		return t, false // the kernel's entries have state that a flow lacks
	}
	return t, true
}

// wanted describes the entry that the kernel's table is to have for a flow.
type wanted struct {
	insert  bool      // the flow is to be added if it is missing: its addresses are not translated
	guessed bool      // its opener is a guess
	across  bool      // it goes past the node's stack, and one of its ends sends at least
	closing bool      // one end has sent its last
	allowed [2]bool   // by policy of the opener, and of the responder
	ends    [2]uint32 // their interfaces; 0: no endpoint of this node
	timeout time.Duration
}

// want returns the entry that the kernel is to have for a flow; not ok: it needs none.
func want(f *bpfmaps.Flow, t dataplane.Timeouts) (w wanted, ok bool) {
	e := &f.Entry
	if e.State&rst != 0 || e.Flags&self != 0 {
		return w, false
	}
	return wanted{
		insert: e.Flags&translated == 0, guessed: e.Flags&midflow != 0,
		across: e.Flags&shortcut != 0 && e.State&revoked == 0 && e.State&fins != fins, closing: e.State&fins != 0,
		allowed: [2]bool{e.Egress != 0 && e.State&revoked == 0, (e.Ingress != 0 || e.Flags&fromHost != 0) && e.State&revoked == 0},
		ends:    [2]uint32{e.OpenerIf, e.ResponderIf},
		timeout: timeoutOf(f, t),
	}, true
}

// flow returns the flow with a tuple as the kernel's table gets it.
func (w wanted) flow(t conntrack.Tuple, all map[conntrack.Tuple]wanted, m Marks) conntrack.Flow {
	f := conntrack.Flow{Original: t, Timeout: w.timeout}
	if m.allowed(all, t, t) {
		f.Mark = m.Value
	}
	return f
}

// timeoutOf returns the time after which a flow without packets expires.
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
