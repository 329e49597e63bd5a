package bpf

import (
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/compile/plan"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/verify"
)

// readPolicy is a compiled policy as it was read back from its slot. Somebody may have altered it in any way, so nothing of
// it is taken for granted.
type readPolicy struct {
	table   table.Table
	program match.Program
	texts   []string // of entries
	word    uint64   // by which programs find the policy
	egress  bool
	ask     func([]bpf.Asked) error
	asked   int
	batch   []bpf.Asked
	places  []place // of the questions in batch
	answers [][]verify.Answer
	lists   []uint16 // backs the answers

	unrecorded map[uint32][]uint32 // classes that no match table can be asked about
}

var _ verify.Policy = (*readPolicy)(nil)

// place is where the answer to a question belongs.
type place struct{ evaluator, question int }

// newReadPolicy returns the policy of a slot; word, egress and ask are still to be set. names are the names of rules.
func newReadPolicy(c bpfmaps.SlotContent, names func(uint32) (string, error)) (*readPolicy, error) {
	p := &readPolicy{program: match.Program{Rules: slices.Clone(c.Rules)}, table: table.Table{
		Slot: c.Shape, L4: c.L4, Rows: c.Rows, RowBlk: c.RowBlk, Cells: c.Cells, Outcomes: c.Outcomes}}
	for i := range p.program.Rules {
		r := &p.program.Rules[i]
		// Programs in the kernel look at no more ranges than there are, and walk forward only.
		r.Ndports, r.Nsports = min(r.Ndports, uint8(len(r.Dport))), min(r.Nsports, uint8(len(r.Sport)))
		r.Jump = max(r.Jump, uint16(min(i+1, 0xffff)))
		text, err := names(r.Id)
		if err != nil {
			return nil, err
		}
		p.texts = append(p.texts, text)
	}
	return p, nil
}

// noRow and noColumn are numbers of classes and ports for which a part of the table is missing.
const noRow, noColumn = 1 << 16, 1 << 16

// Row implements verify.Policy.
func (p *readPolicy) Row(class uint32) uint32 {
	if p.table.Interpreted() {
		return class
	}
	if row, ok := p.table.RowOf(class); ok {
		return uint32(row)
	}
	return noRow
}

// Destinations implements verify.Policy.
func (p *readPolicy) Destinations(a verify.Axis) []verify.Run {
	if p.table.Interpreted() {
		return p.cuts(a, destinationEdges)
	}
	return p.runs(a, int(a))
}

// Sources implements verify.Policy.
func (p *readPolicy) Sources(a verify.Axis) []verify.Run {
	switch {
	case p.table.Interpreted():
		return p.cuts(a, sourceEdges)
	case p.table.Slot.Flags&bpf.SlotSourcePorts == 0:
		return nil
	}
	return p.runs(a, bpf.L4Indexes+int(a))
}

// runs reads the runs of an axis from its pages.
func (p *readPolicy) runs(a verify.Axis, first int) []verify.Run {
	pages := 256
	if a == verify.AxisOther {
		pages = 1
	}
	var runs []verify.Run
	for high := range pages {
		for low := range 256 {
			key, column := uint16(high<<8|low), uint32(noColumn)
			if first < len(p.table.L4) {
				if second := int(p.table.L4[first].Col[high]); second < len(p.table.L4) {
					column = uint32(p.table.L4[second].Col[low])
				}
			}
			if n := len(runs); n > 0 && runs[n-1].Column == column {
				runs[n-1].Hi = key
			} else {
				runs = append(runs, verify.Run{Lo: key, Hi: key, Column: column})
			}
		}
	}
	return runs
}

// destinationEdges and sourceEdges are where the ranges of an entry begin, and behind their ends.
func destinationEdges(r *bpf.Rule) (at []uint32) {
	for _, x := range r.Dport[:r.Ndports] {
		at = append(at, uint32(x.Lo), uint32(x.Hi)+1)
	}
	return at
}

func sourceEdges(r *bpf.Rule) (at []uint32) {
	for _, x := range r.Sport[:r.Nsports] {
		at = append(at, uint32(x.Lo), uint32(x.Hi)+1)
	}
	return at
}

// cuts are runs between all the edges of ranges of entries.
func (p *readPolicy) cuts(a verify.Axis, edges func(*bpf.Rule) []uint32) []verify.Run {
	at := []uint16{0}
	for i := range p.program.Rules {
		r := &p.program.Rules[i]
		for _, edge := range edges(r) {
			if edge <= 0xffff {
				at = append(at, uint16(edge))
			}
		}
		if a == verify.AxisOther {
			at = append(at, uint16(r.Proto), uint16(r.Proto)+1)
		}
	}
	slices.Sort(at)
	at = slices.Compact(at)
	runs := make([]verify.Run, len(at))
	for i, lo := range at {
		runs[i] = verify.Run{Lo: lo, Hi: 0xffff, Column: uint32(i)}
		if i > 0 {
			runs[i-1].Hi = lo - 1
		}
	}
	return runs
}

// Evaluators implements verify.Policy.
func (p *readPolicy) Evaluators() []string {
	if p.table.Interpreted() {
		return []string{"match table"}
	}
	return []string{"decision table", "match table"}
}

// stepsEach is how many entries of a match table are walked for a question on average, at most, where a decision table is
// in force: longer ones are asked a part of the questions.
const stepsEach = 64

// Judge implements verify.Policy. The programs in the kernel answer. Where a decision table is in force they are asked for the
// answer of the match table as well, but not about a class that map class_sets has no room for.
func (p *readPolicy) Judge(questions []verify.Question) ([][]verify.Answer, error) {
	p.answers, p.lists = p.answers[:0], p.lists[:0]
	for range p.Evaluators() {
		p.answers = append(p.answers, make([]verify.Answer, len(questions)))
	}
	p.batch, p.places = p.batch[:0], p.places[:0]
	for i := range questions {
		p.add(&questions[i], place{0, i})
		if len(p.answers) == 1 {
			continue
		}
		_, unrecorded := p.unrecorded[questions[i].Class]
		if p.asked++; !unrecorded && p.asked%(1+len(p.program.Rules)/stepsEach) == 0 {
			p.add(&questions[i], place{1, i})
		} else {
			p.answers[1][i].Skipped = true
		}
	}
	if err := p.ask(p.batch); err != nil {
		return nil, err
	}
	for i := range p.batch {
		at := p.places[i]
		p.answers[at.evaluator][at.question] = p.answer(&p.batch[i], questions[at.question].Class)
	}
	return p.answers, nil
}

// add adds a question to the batch.
func (p *readPolicy) add(q *verify.Question, at place) {
	remote := q.Packet.Src
	if p.egress {
		remote = q.Packet.Dst
	}
	_, key := match.L4Key(q.Packet)
	a := bpf.Asked{Word: p.word, L4: key, Sport: q.Packet.SrcPort, Proto: q.Packet.Protocol, Family: verify.Family(remote), ByRules: uint8(at.evaluator)}
	copy(a.Addr[:], remote.AsSlice())
	p.batch, p.places = append(p.batch, a), append(p.places, at)
}

// answer is what an answer of the programs means. Class is that of the remote address as it was read.
func (p *readPolicy) answer(o *bpf.Asked, class uint32) verify.Answer {
	a := verify.Answer{Allow: o.Allow != 0, Entry: int(o.Rule), NPasses: int(o.Npasses), NLogs: int(o.Nlogs)}
	if o.Missing != 0 || o.Class != class || a.Entry >= len(p.program.Rules) || p.program.Rules[a.Entry].Id != o.RuleId {
		a.Entry = -1 // or the address is of another class now, or the packet is counted for another rule
	}
	a.Passes, a.Logs = p.list(o.Pass[:min(a.NPasses, len(o.Pass))]), p.list(o.Log[:min(a.NLogs, len(o.Log))])
	return a
}

func (p *readPolicy) list(entries []uint16) []uint16 {
	if len(entries) == 0 {
		return nil
	}
	from := len(p.lists)
	p.lists = append(p.lists, entries...)
	return p.lists[from:len(p.lists):len(p.lists)]
}

// Texts implements verify.Policy.
func (p *readPolicy) Texts() []string { return p.texts }

// Where implements verify.Policy: entries have names.
func (p *readPolicy) Where(int, verify.Question) string { return "" }

// Kept implements verify.Policy.
func (p *readPolicy) Kept(text string) string { return plan.NameText(text) }
