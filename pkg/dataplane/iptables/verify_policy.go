package iptables

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/compile/chains"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/ruleset/walk"
	"github.com/margay-project/margay/pkg/verify"
)

// slotPolicy answers questions about one direction of an endpoint by walks through the chains of its slots. A slot judges packets in
// two ways: those that go as their flow was opened, and answers, which it judges as the packets they answer. Each is an evaluator.
type slotPolicy struct {
	direction model.Direction
	marks     chains.Marks
	unusual   *unusual
	of        map[uint8]*slotRead // by IP version; no entry: no slot judges its addresses
	rows      map[uint32]uint32
	residues  numbering[string]
	walker    walk.Walker
	answers   [2][]verify.Answer
}

// slotRead are the chains of a slot for one IP version.
type slotRead struct {
	*familyRead
	number  uint32
	ends    [2]string // names of interfaces: one like the endpoint's, and one outside
	packets [2]uint32 // marks with which packets come, by evaluator
	tests   [2][]walk.Test
}

var errChanged = errors.New("the policy was written again since it was read")

// Policy implements verify.Kernel.
func (v *Verifier) Policy(id verify.PolicyID, d model.Direction) (verify.Policy, error) {
	p := &slotPolicy{direction: d, marks: v.read.config.marks, unusual: &v.unusual, of: map[uint8]*slotRead{}, rows: map[uint32]uint32{}, residues: v.residues}
	for key, number := range v.policies {
		if verify.PolicyID(number) != id {
			continue
		}
		for n, family := range families {
			if key.slots[n] == 0 {
				continue
			}
			read, err := v.read.readSlot(family, key.slots[n])
			if err != nil {
				return nil, err
			}
			p.of[family] = read
		}
		return p, nil
	}
	return nil, errChanged
}

// readSlot returns a slot as it was read.
func (r *reading) readSlot(family uint8, number uint32) (*slotRead, error) {
	value, err := r.config.marks.Slot(number)
	if err != nil {
		return nil, err
	}
	_, against := r.config.marks.Flags()
	f := r.of[family]
	s := &slotRead{familyRead: f, number: number, ends: [2]string{r.config.prefix + "0", r.uplink()}, packets: [2]uint32{value.Value, value.Value | against}}
	for evaluator, mark := range s.packets {
		s.tests[evaluator] = f.table.Tests(s.chain(), mark&against, against)
	}
	return s, nil
}

func (s *slotRead) chain() string { return s.names.Chain(fmt.Sprintf("s%d", s.number)) }

// Evaluators implements verify.Policy.
func (p *slotPolicy) Evaluators() []string { return []string{"ruleset", "ruleset for answers"} }

// The evaluators.
const (
	asOpened = iota
	asAnswered
)

// classLookup answers for the set of classes as if all addresses were of one class, and for other sets as they were read.
type classLookup struct {
	*familyRead
	entry walk.Entry
	found bool
}

// Lookup implements walk.Sets.
func (c *classLookup) Lookup(name string, places []walk.Place, p *walk.Packet) (walk.Entry, bool, error) {
	set := c.sets[name]
	if set != nil && name == c.names.Sets(familyOf(p.Src)).Class {
		return c.entry, c.found, nil
	}
	return c.familyRead.Lookup(name, places, p)
}

func (p *slotPolicy) lookup(s *slotRead, class uint32) *classLookup {
	entry, found := p.unusual.mark(p.marks, class)
	return &classLookup{s.familyRead, entry, found}
}

// Row implements verify.Policy: classes that leave the same rules of the slot have the same number.
func (p *slotPolicy) Row(class uint32) uint32 {
	if row, ok := p.rows[class]; ok {
		return row
	}
	allow, against := p.marks.Flags()
	text := ""
	for _, family := range families {
		s := p.of[family]
		if s == nil {
			continue
		}
		own, other := netip.IPv4Unspecified(), netip.IPv4Unspecified()
		if family == 6 {
			own, other = netip.IPv6Unspecified(), netip.IPv6Unspecified()
		}
		for evaluator := range s.packets {
			packet := p.packet(s, evaluator, own, other)
			left, ok := walk.Residue(walk.Stage{Table: s.table, Chain: s.chain()}, packet, p.lookup(s, class), allow|against)
			if !ok {
				left = fmt.Sprint("class ", class)
			}
			text += fmt.Sprintf("IPv%d, evaluator %d:\n%s\n", family, evaluator, left)
		}
	}
	p.rows[class] = p.residues.of(text)
	return p.rows[class]
}

// packet returns a packet between an endpoint's own address and another one, as an evaluator sees it, without a transport header.
func (p *slotPolicy) packet(s *slotRead, evaluator int, own, other netip.Addr) walk.Packet {
	packet := walk.Packet{In: s.ends[0], Out: s.ends[1], Src: own, Dst: other, Mark: s.packets[evaluator], Connection: &walk.Connection{}}
	if (p.direction == model.Egress) == (evaluator == asAnswered) {
		packet.In, packet.Out, packet.Src, packet.Dst = packet.Out, packet.In, packet.Dst, packet.Src
	}
	if evaluator == asAnswered {
		packet.Connection.State, packet.Connection.Reply = walk.Established, true
	}
	return packet
}

// replies has the ICMP type of the answers for each type that has answers, by protocol. Only answers go against a flow.
var replies = map[uint8]map[uint8]uint8{
	model.ProtoICMP:   {8: 0, 13: 14, 15: 16, 17: 18},
	model.ProtoICMPv6: {128: 129, 139: 140},
}

// asked returns the packet of a question for an evaluator; not ok: there is no such packet.
func (p *slotPolicy) asked(s *slotRead, evaluator int, q *verify.Question) (packet walk.Packet, ok bool) {
	own, other := q.Packet.Dst, q.Packet.Src
	if p.direction == model.Egress {
		own, other = other, own
	}
	packet = p.packet(s, evaluator, own, other)
	packet.Protocol, packet.Connection.Protocol = q.Packet.Protocol, q.Packet.Protocol
	packet.Ports = walk.Ports{Src: q.Packet.SrcPort, Dst: q.Packet.DstPort}
	packet.ICMP = walk.ICMP{Type: q.Packet.ICMPType, Code: q.Packet.ICMPCode}
	if q.Packet.Protocol == model.ProtoTCP {
		packet.TCP = walk.SYN
	}
	if evaluator == asOpened {
		return packet, true
	}
	packet.Ports.Src, packet.Ports.Dst = packet.Ports.Dst, packet.Ports.Src
	packet.TCP |= packet.TCP << 3 // SYN and ACK
	if types := replies[q.Packet.Protocol]; types != nil && (q.Packet.Protocol == model.ProtoICMP) == own.Is4() {
		packet.ICMP.Type, ok = types[q.Packet.ICMPType]
		return packet, ok
	}
	return packet, true
}

// walk walks a question's packet.
func (p *slotPolicy) walk(evaluator int, q *verify.Question) (s *slotRead, r walk.Result, asked bool, err error) {
	if s = p.of[familyOf(q.Packet.Src)]; s == nil {
		return nil, r, false, nil // Faults reports that no slot judges the address
	}
	packet, ok := p.asked(s, evaluator, q)
	if !ok {
		return s, r, false, nil
	}
	r, err = p.walker.Walk([]walk.Stage{{Table: s.table, Chain: s.chain()}}, packet, p.lookup(s, q.Class))
	return s, r, true, err
}

// Judge implements verify.Policy.
func (p *slotPolicy) Judge(questions []verify.Question) ([][]verify.Answer, error) {
	allow, _ := p.marks.Flags()
	for evaluator := range p.answers {
		list := slices.Grow(p.answers[evaluator][:0], len(questions))
		for i := range questions {
			_, r, asked, err := p.walk(evaluator, &questions[i])
			a := verify.Answer{Skipped: !asked, Untraced: true}
			a.Allow = r.Verdict == walk.Accept || r.Verdict == walk.Returned && r.Mark&allow != 0
			if err != nil {
				a.Allow, a.Entry = false, -1
			}
			list = append(list, a)
		}
		p.answers[evaluator] = list
	}
	return [][]verify.Answer{p.answers[asOpened], p.answers[asAnswered]}, nil
}

// Texts implements verify.Policy: rules of iptables do not name the rule of policy they come from.
func (p *slotPolicy) Texts() []string { return []string{""} }

// Kept implements verify.Policy.
func (p *slotPolicy) Kept(text string) string { return text }

// Where implements verify.Policy.
func (p *slotPolicy) Where(evaluator int, q verify.Question) string {
	s, r, _, err := p.walk(evaluator, &q)
	switch {
	case err != nil:
		return err.Error()
	case len(r.Path) == 0:
		return s.chain() + ", in which no rule matches"
	}
	for i := len(r.Path) - 1; i >= 0; i-- { // the last in a slot
		if name := r.Path[i].Chain; name == s.chain() || len(name) > len(s.chain()) && name[:len(s.chain())+1] == s.chain()+"-" {
			return fmt.Sprintf("chain %s, rule %d (%s)", name, r.Path[i].Index+1, s.rule(r.Path[i]))
		}
	}
	return s.where(r)
}
