package iptables

import (
	"math"
	"net/netip"
	"strings"
	"time"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/compile/chains"
	"github.com/margay-project/margay/pkg/compile/plan"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/flows"
	"github.com/margay-project/margay/pkg/ipsets"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/packetlog"
)

const (
	// decideFor bounds how long one call of Decide holds the loop. Copies beyond it get no record, except the first leastDecided: the
	// machine may stop the agent for longer than that, and the flows of a quiet node are recorded nevertheless.
	decideFor    = 2 * time.Millisecond
	leastDecided = 16
	// copiedWithin bounds how long a copy is on its way, unless copies come faster than the agent reads them.
	copiedWithin = 250 * time.Millisecond
)

// Texts of records: of a verdict that the policy in force does not give any more, and of an endpoint whose policy may have changed
// while the copy was on its way.
const (
	ruleNotKnown = "not known: policy or addresses have changed since"
	changedThen  = "policy changed about then"
)

// events makes flow records from copies of packets that chains have judged. A copy has the verdict, but not the rule. To find the
// rule, the packet is evaluated again by the tables that the chains were made from.
type events struct {
	leftOut uint64             // copies that no record was made of, since the last record
	staged  map[staging]uint64 // see staged.go
}

// Decide returns the records of copies: for each packet the record of the opener's egress, then that of the responder's ingress,
// each only if that end is an endpoint of this node. Like Apply, only the loop's goroutine may call it.
func (d *IPTables) Decide(copies []packetlog.Copy) []flows.Unnamed {
	return d.decideUntil(copies, time.Now().Add(decideFor))
}

func (d *IPTables) decideUntil(copies []packetlog.Copy, until time.Time) []flows.Unnamed {
	x := decider{d: d, state: d.state, names: map[uint32]string{}, until: until}
	for name, ifindex := range d.kernel.Node.Interfaces() {
		x.names[ifindex] = name
	}
	for i := range copies {
		if i >= leastDecided && time.Now().After(x.until) {
			x.leftOut += uint64(len(copies) - i)
			break
		}
		x.decide(&copies[i])
	}
	if len(x.list) > 0 {
		x.list[0].Record.Suppressed = uint16(min(d.events.leftOut, math.MaxUint16))
		d.events.leftOut = 0
	}
	d.events.leftOut += x.leftOut
	return x.list
}

// decider makes the records of one batch.
type decider struct {
	d     *IPTables
	state *state
	names map[uint32]string // of interfaces
	until time.Time
	list  []flows.Unnamed
	// leftOut counts the copies that no record was made of.
	leftOut uint64
}

// side is one direction of an endpoint of this node that has judged a packet.
type side struct {
	id        model.EndpointID
	ep        *endpoint
	ifindex   uint32
	direction model.Direction
	remote    netip.Addr // as policy sees it
}

// decide makes the records of one copy.
func (x *decider) decide(c *packetlog.Copy) {
	kind, generation, ok := chains.ParseEvent(c.Prefix)
	if !ok {
		return
	}
	packet, sides := x.sides(c)
	allowed := kind == chains.EventAllowed || kind == chains.EventAllowedAgain
	first := kind == chains.EventAllowed || kind == chains.EventDenied
	begun := len(x.list)
	for i := range sides {
		s := &sides[i]
		verdict, known := x.judge(s, packet)
		r := &flows.Record{Time: c.Time.UTC(), Direction: flows.Egress, Verdict: flows.Allow, Packet: flowOf(c, packet)}
		if s.direction == model.Ingress {
			r.Direction = flows.Ingress
		}
		last := i == len(sides)-1
		switch {
		case !known, verdict.Allow != allowed && (allowed || last):
			r.Rule = ruleNotKnown
			if !allowed && len(sides) > 1 { // nor whose it is
				x.list = x.list[:begun]
				x.leftOut++
				return
			}
		default:
			describe(r, verdict)
			r.Staged = x.staged(s, packet, verdict.Allow, first)
		}
		r.Note = x.note(kind, generation, s, c.Time)
		denied := !allowed && (last || known && !verdict.Allow)
		if denied {
			r.Verdict = flows.Deny
		}
		x.list = append(x.list, flows.Unnamed{Ifindex: s.ifindex, Record: r})
		if denied {
			return
		}
	}
}

// sides returns the sides that have judged a packet, in order, and the packet in the direction in which its flow was opened.
func (x *decider) sides(c *packetlog.Copy) (p model.Packet, list []side) {
	p = model.Packet{Src: c.Packet.Src.Addr(), Dst: c.Packet.Dst.Addr(), SrcPort: c.Packet.Src.Port(), DstPort: c.Packet.Dst.Port(), Protocol: c.Number}
	if c.Packet.ICMP != nil {
		p.ICMPType, p.ICMPCode = c.Packet.ICMP.Type, c.Packet.ICMP.Code
	}
	from, to := c.In, c.Out
	if x.state.slots.marks.IsAnswer(c.Mark) {
		p.Src, p.Dst, p.SrcPort, p.DstPort, from, to = p.Dst, p.Src, p.DstPort, p.SrcPort, to, from
		p.ICMPType = askedBy(&p)
	}
	opener, isOpener := x.end(from, p.Src)
	responder, isResponder := x.end(to, p.Dst)
	if isOpener && isResponder && opener == responder {
		return p, nil // no policy judges it
	}
	if isOpener {
		list = append(list, side{opener, x.state.endpoints.bound[opener], from, model.Egress, p.Dst})
	}
	if isResponder {
		remote := p.Src
		if c.Mark&x.d.config.MasqueradeMark != 0 {
			remote = x.nodeAddr(remote)
		}
		list = append(list, side{responder, x.state.endpoints.bound[responder], to, model.Ingress, remote})
	}
	return p, list
}

// end returns the endpoint on an interface that owns an address, or may send from it.
func (x *decider) end(ifindex uint32, a netip.Addr) (id model.EndpointID, ok bool) {
	name := x.names[ifindex]
	if name == "" {
		return id, false
	}
	e := x.state.endpoints
	id, ok = e.holder[ipsets.Key{Prefix: single(a), Interface: name}]
	return id, ok && e.bound[id] != nil
}

// nodeAddr returns the address that masquerading gives packets of the family, chosen as by locate.
func (x *decider) nodeAddr(of netip.Addr) netip.Addr {
	for _, a := range x.state.nodeAddrs() {
		if a.Is4() == of.Is4() && a.IsGlobalUnicast() {
			return a
		}
	}
	return of
}

// askedBy returns the type of the ICMP message that a packet answers; its own type if it is no answer.
func askedBy(p *model.Packet) uint8 {
	asks := map[uint8]uint8{}
	switch p.Protocol {
	case model.ProtoICMP:
		asks = map[uint8]uint8{0: 8, 14: 13, 16: 15, 18: 17}
	case model.ProtoICMPv6:
		asks = map[uint8]uint8{129: 128, 140: 139}
	}
	if t, ok := asks[p.ICMPType]; ok {
		return t
	}
	return p.ICMPType
}

// judge evaluates a packet by the policy in force of one side; not known: the side has no policy.
func (x *decider) judge(s *side, p model.Packet) (v model.Verdict, known bool) {
	at := x.state.slots.list[s.ep.tables[s.direction]]
	if at == nil {
		return v, false
	}
	return x.evaluate(at.table, s.remote, p), true
}

func (x *decider) evaluate(t *table.Table, remote netip.Addr, p model.Packet) model.Verdict {
	class := plan.ClassOf(x.state.plans.Compiler, remote)
	var o bpf.Outcome
	if t.Interpreted() {
		o = t.Program.Interpret(class, p)
	} else {
		o = t.Eval(class.ID, p)
	}
	return t.Program.Verdict(o)
}

// note returns the remarks on a verdict for its record; empty: there are none.
func (x *decider) note(kind chains.EventKind, generation uint32, s *side, at time.Time) string {
	var notes []string
	switch kind {
	case chains.EventRevoked:
		notes = append(notes, "revoked")
	case chains.EventAllowedAgain:
		notes = append(notes, "judged again")
	}
	since := s.ep.since
	if slot := x.state.slots.list[s.ep.tables[s.direction]]; slot != nil && slot.since.After(since) {
		since = slot.since
	}
	if since.After(at.Add(-copiedWithin)) || generation != x.state.static.generation.number {
		notes = append(notes, changedThen)
	}
	return strings.Join(notes, ", ")
}
