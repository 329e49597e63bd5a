package handover

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/conntrack"
)

// Flows converts entries of the kernel's table into flows of BPF maps. No field may be nil.
type Flows struct {
	Place func(netip.Addr) Place
	Mark  func(conntrack.Entry) Mark
	// Stamp is a generation that no policy is published under. A flow with it was allowed before, and is judged again.
	Stamp uint32
	// Keep: flows that policy in force has allowed stay allowed, and all others are judged as if they began now.
	Keep bool
	Now  uint32 // the time of the flows, as bpfmaps.FlowClock has it
}

// Of returns the flows of an entry: the one that the opener's hooks see, and the one that the responder's hooks see. They are the
// same flow unless addresses are translated. Each is in the result only if its end is an endpoint of this node.
func (f Flows) Of(e conntrack.Entry) []bpfmaps.Flow {
	m := f.Mark(e)
	before, after := e.Original, swapped(e.Reply)
	if isICMP(e.Original.Protocol, e.Original.Src.Is6()) {
		after.ICMPType, after.ICMPCode = before.ICMPType, before.ICMPCode
	}
	if m.Turned {
		if before != after {
			return nil // it was translated as if its responder had opened it
		}
		before, after = swapped(before), swapped(after)
	}
	if e.Zone != 0 || e.TCPState >= conntrack.TCPTimeWait {
		return nil
	}
	opener, front, ok1 := ends(before)
	masked, responder, ok2 := ends(after)
	if !ok1 || !ok2 {
		return nil
	}
	c := carried{f: f, entry: e, mark: m, from: f.Place(opener.Addr()), to: f.Place(responder.Addr())}
	if before == after {
		return c.plain(opener, responder)
	}
	return c.translated(opener, front, masked, responder)
}

// carried is an entry that is converted into flows.
type carried struct {
	f        Flows
	entry    conntrack.Entry
	mark     Mark
	from, to Place
}

// plain returns the flow of a connection without translation: both ends see the same one.
func (c *carried) plain(opener, responder netip.AddrPort) []bpfmaps.Flow {
	if c.from.Interface == 0 && c.to.Interface == 0 {
		return nil
	}
	e := c.begin(responder)
	switch {
	case c.from.Node: // no policy judges flows that the node opens
		e.Flags |= fromHost
		e.ResponderIf = c.to.Interface
	default:
		e.Egress, e.OpenerIf = c.stamp(c.from), c.from.Interface
		e.Ingress, e.ResponderIf = c.stamp(c.to), c.to.Interface
		if c.to.Node {
			setBackend(&e, responder)
		}
	}
	return []bpfmaps.Flow{bpfmaps.NewFlow(opener, responder, c.entry.Original.Protocol, e)}
}

// translated returns the flows of a connection to a Service.
func (c *carried) translated(opener, front, masked, responder netip.AddrPort) []bpfmaps.Flow {
	var list []bpfmaps.Flow
	protocol := c.entry.Original.Protocol
	toItself := c.from.Interface != 0 && c.from.Interface == c.to.Interface && opener.Addr() == responder.Addr()
	if c.from.Interface != 0 {
		e := c.begin(responder)
		e.Egress, e.OpenerIf = c.stamp(c.from), c.from.Interface
		if toItself {
			e.Flags |= self
		} else {
			setBackend(&e, responder)
		}
		list = append(list, bpfmaps.NewFlow(opener, front, protocol, e))
	}
	if c.to.Interface != 0 {
		e := c.begin(responder)
		e.ResponderIf = c.to.Interface
		if c.from.Node { // no policy judges flows that the node opens
			e.Flags |= fromHost
		} else {
			e.Ingress = c.stamp(c.to)
		}
		if toItself {
			e.Flags |= self
		}
		list = append(list, bpfmaps.NewFlow(masked, responder, protocol, e))
	}
	return list
}

// begin returns the entry of a flow to a responder that no end has judged.
func (c *carried) begin(responder netip.AddrPort) bpf.CtEntry {
	e := bpf.CtEntry{Seen: c.f.Now, L4: c.port(responder)}
	if c.entry.Status&conntrack.SeenReply != 0 || c.mark.Turned {
		e.State |= replied
	}
	switch {
	case c.entry.Original.Protocol == unix.IPPROTO_TCP:
		if c.entry.TCPState >= conntrack.TCPEstablished {
			e.State |= replied | open
		}
		if c.entry.TCPState >= conntrack.TCPLastAck {
			e.State |= fins
		}
		if c.mark.Denied {
			e.State |= revoked
		}
	case c.mark.Denied:
		e.State |= oneWay
	case c.entry.Status&conntrack.Assured != 0:
		e.State |= replied | open
	}
	return e
}

// port returns the L4 field of a flow to a responder, by which policy judges it: the port, the ICMP type << 8, or the protocol.
func (c *carried) port(responder netip.AddrPort) uint16 {
	t := c.entry.Original
	switch {
	case hasPorts(t.Protocol):
		return responder.Port()
	case isICMP(t.Protocol, t.Src.Is6()):
		return uint16(t.ICMPType) << 8
	}
	return uint16(t.Protocol)
}

// stamp returns the stamp of one end; 0: it is not an endpoint of this node, or has not allowed the flow.
func (c *carried) stamp(end Place) uint32 {
	if end.Interface == 0 || c.mark.Denied && c.entry.Original.Protocol != unix.IPPROTO_TCP || !c.mark.Judged || c.f.Keep && !c.mark.Allowed {
		return 0
	}
	return c.f.Stamp
}

// setBackend notes the destination that egress policy judges.
func setBackend(e *bpf.CtEntry, to netip.AddrPort) {
	e.Flags |= translated
	copy(e.Backend[:], to.Addr().AsSlice())
}
