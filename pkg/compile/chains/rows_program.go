package chains

import (
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/model"
)

// maxSweep bounds the work for the rows of a policy without a decision table, in entries compared. That is some 50 ms.
const maxSweep = 1 << 24

// programRows are the rows of a policy without a decision table: one for the entries that hold for a class by its addresses.
type programRows struct {
	p       *match.Program
	family  uint8
	effects *effects
	pro     *profiles
	dports  [][]model.PortRange // by entry; nil: any
	sports  [][]model.PortRange
	number  map[string]uint16
	holding [][]int32 // by row
	steps   int
}

func newProgramRows(p *match.Program, family uint8, e *effects, pro *profiles) *programRows {
	r := &programRows{p: p, family: family, effects: e, pro: pro, number: map[string]uint16{}, holding: make([][]int32, 1)}
	for i := range p.Rules {
		rule := &p.Rules[i]
		var dports, sports []model.PortRange
		for _, x := range rule.Dport[:rule.Ndports] {
			dports = append(dports, model.PortRange{Lo: x.Lo, Hi: x.Hi})
		}
		for _, x := range rule.Sport[:rule.Nsports] {
			sports = append(sports, model.PortRange{Lo: x.Lo, Hi: x.Hi})
		}
		r.dports, r.sports = append(r.dports, dports), append(r.sports, sports)
	}
	return r
}

func (r *programRows) of(c classes.Class) uint16 {
	var holds []int32
	var key []byte
	flag := bpf.RuleV4
	if r.family == 6 {
		flag = bpf.RuleV6
	}
	for i := range r.p.Rules {
		e := &r.p.Rules[i]
		if e.Flags&flag != 0 && c.HasAll(e.In[:]) && c.HasNone(e.NotIn[:]) {
			holds = append(holds, int32(i))
			key = append(key, byte(i), byte(i>>8))
		}
	}
	row, ok := r.number[string(key)]
	if !ok {
		row = uint16(len(r.holding))
		r.number[string(key)] = row
		r.holding = append(r.holding, holds)
	}
	return row
}

func (r *programRows) common(int) (*leaf, error) { return &leaf{}, nil } // no row has a base

func (r *programRows) leaf(row uint16) (*leaf, error) {
	var full [bpf.L4Indexes][]span
	for index := range full {
		full[index] = r.protocol(index, r.holding[row])
		if r.steps > maxSweep {
			return nil, &TooLargeError{What: "entries to look at", Most: maxSweep}
		}
	}
	r.steps = 0
	return leafOfSpans(&full, r.family)
}

// protocol returns the spans of one protocol index.
func (r *programRows) protocol(index int, holding []int32) (out []span) {
	if index == bpf.L4Other {
		for number := range 256 {
			fits := r.fitting(uint8(number), holding)
			out = join(out, span{uint16(number), uint16(number), r.portless(index, uint16(number), fits)})
		}
		return out
	}
	fits := r.fitting(match.L4Protocols[index], holding)
	known := map[string]target{}
	begin := starts(fits, r.dports)
	for i, lo := range begin {
		hi := uint16(0xffff)
		if i+1 < len(begin) {
			hi = begin[i+1] - 1
		}
		var here []int32
		var key []byte
		for _, e := range fits {
			if r.dports[e] == nil || inside(r.dports[e], lo) {
				here = append(here, e)
				key = append(key, byte(e), byte(e>>8))
			}
		}
		r.steps += len(fits)
		to, ok := known[string(key)]
		if !ok && r.steps <= maxSweep {
			to = r.sources(index, here)
			known[string(key)] = to
		}
		out = join(out, span{lo, hi, to})
	}
	return out
}

// fitting returns the entries that match a protocol.
func (r *programRows) fitting(proto uint8, holding []int32) (out []int32) {
	for _, e := range holding {
		rule := &r.p.Rules[e]
		same := rule.Proto == proto
		if rule.Flags&bpf.RuleProto != 0 && !same || rule.Flags&bpf.RuleNotProto != 0 && same {
			continue
		}
		out = append(out, e)
	}
	return out
}

// starts returns 0, the keys at which the ranges of entries begin, and the keys behind their ends.
func starts(entries []int32, ranges [][]model.PortRange) []uint16 {
	out := []uint16{0}
	for _, e := range entries {
		for _, x := range ranges[e] {
			if out = append(out, x.Lo); x.Hi < 0xffff {
				out = append(out, x.Hi+1)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// sources returns the target of packets that match the entries except for their source ports.
func (r *programRows) sources(index int, entries []int32) target {
	if index > bpf.L4SCTP {
		return r.portless(index, 0, entries)
	}
	var spans []span
	begin := starts(entries, r.sports)
	for i, lo := range begin {
		hi := uint16(0xffff)
		if i+1 < len(begin) {
			hi = begin[i+1] - 1
		}
		spans = join(spans, span{lo, hi, r.walk(func(e int32) bool {
			return r.sports[e] == nil || inside(r.sports[e], lo)
		}, entries)})
	}
	return r.pro.add(index, spans)
}

// of16 returns the effect of packets that match the entries, of protocols without source ports.
func (r *programRows) portless(index int, key uint16, entries []int32) target {
	return r.walk(func(e int32) bool {
		return r.sports[e] == nil && (index != bpf.L4Other || r.dports[e] == nil || inside(r.dports[e], key))
	}, entries)
}

// walk is match.Program.Interpret over some entries.
func (r *programRows) walk(fits func(entry int32) bool, entries []int32) target {
	var trace bpf.Outcome
	for next := 0; len(entries) > 0; entries = entries[1:] {
		i := int(entries[0])
		rule := &r.p.Rules[i]
		r.steps++
		if i < next || !fits(entries[0]) {
			continue
		}
		to, done := match.Step(&trace, rule, i)
		if done {
			return r.effects.of(trace)
		}
		next = to
	}
	return noEffect
}

func inside(ranges []model.PortRange, key uint16) bool {
	return slices.ContainsFunc(ranges, func(x model.PortRange) bool { return x.Contains(key) })
}
