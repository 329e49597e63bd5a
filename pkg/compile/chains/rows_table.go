package chains

import (
	"cmp"
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/table"
)

// sharedFrom is the number of spans from which on the shared part of rows gets chains of its own.
const sharedFrom = 8

// tableRows are the rows of a decision table.
type tableRows struct {
	t       *table.Table
	family  uint8
	effects *effects
	pro     *profiles
	columns [bpf.L4Indexes][]table.ColumnSpan
	sources [bpf.L4Indexes][]table.ColumnSpan
	spansOf map[int][]indexSpan // by column: its keys
	effect  []target            // by outcome

	now loaded // the base that was loaded last
	// plain is the base of addresses that are in no set of policy. Rows that are not made of a base with exceptions often
	// differ from it in few keys.
	plain loaded
	list  []table.Exception
}

// loaded is a base as spans that cover all keys, and as a leaf.
type loaded struct {
	number int // -1: none
	full   [bpf.L4Indexes][]span
	leaf   *leaf
	err    error
}

// indexSpan is a range of keys of one protocol index.
type indexSpan struct {
	index  int
	lo, hi uint16
}

func newTableRows(t *table.Table, family uint8, e *effects, pro *profiles) *tableRows {
	r := &tableRows{t: t, family: family, effects: e, pro: pro, now: loaded{number: -1}}
	for _, o := range t.Outcomes {
		r.effect = append(r.effect, e.of(o))
	}
	for i := range r.columns {
		r.columns[i], r.sources[i] = t.Spans(i, false), t.Spans(i, true)
	}
	if t.Slot.Flags&bpf.SlotWide != 0 {
		r.spansOf = map[int][]indexSpan{}
		for i, spans := range r.columns {
			for _, s := range spans {
				r.spansOf[s.Column] = append(r.spansOf[s.Column], indexSpan{i, s.Lo, s.Hi})
			}
		}
	}
	none := classes.None4
	if family == 6 {
		none = classes.None6
	}
	row, _ := t.RowOf(none)
	b, _ := t.Base(row)
	r.load(b)
	r.plain = r.now
	for i, spans := range r.now.full {
		r.plain.full[i] = slices.Clone(spans)
	}
	return r
}

// of uses the sets of the class, not the table's row for its number: that may be the row of an earlier class with the number.
func (r *tableRows) of(c classes.Class) uint16 { return r.t.JudgedBy(c) }

// cell returns the effect of one column of a base.
func (r *tableRows) cell(base, col int) target {
	outcome, ok := r.t.BaseOutcome(base, col)
	if !ok {
		return noEffect
	}
	return r.effect[outcome]
}

// across returns the target of keys of a protocol, by the effect that get returns for each column.
func (r *tableRows) across(index, col int, get func(col int) target) target {
	sports := int(r.t.Slot.Sports)
	if sports == 1 {
		return get(col)
	}
	var spans []span
	for _, s := range r.sources[index] {
		spans = join(spans, span{s.Lo, s.Hi, get(col*sports + s.Column)})
	}
	return r.pro.add(index, spans)
}

// load sets now to a base.
func (r *tableRows) load(base int) {
	if r.now.number == base {
		return
	}
	r.now.number = base
	get := func(col int) target { return r.cell(base, col) }
	for i, columns := range r.columns {
		known := map[int]target{}
		spans := r.now.full[i][:0]
		for _, c := range columns {
			to, ok := known[c.Column]
			if !ok {
				to = r.across(i, c.Column, get)
				known[c.Column] = to
			}
			spans = join(spans, span{c.Lo, c.Hi, to})
		}
		r.now.full[i] = spans
	}
	r.now.leaf, r.now.err = leafOfSpans(&r.now.full, r.family)
}

func (r *tableRows) common(b int) (*leaf, error) {
	r.load(b)
	return r.now.leaf, r.now.err
}

func (r *tableRows) leaf(row uint16) (*leaf, error) {
	b, ok := r.t.Base(row)
	if !ok {
		return &leaf{}, nil // noEffect
	}
	r.load(b)
	if r.now.err != nil {
		return nil, r.now.err
	}
	if r.list = r.t.Exceptions(r.list[:0], row); len(r.list) > 0 {
		return r.excepted()
	}
	l := *r.now.leaf
	for i := range bpf.L4ICMP {
		if n := len(l[i].spans); n > sharedFrom {
			if over := difference(r.now.full[i], r.plain.full[i]); len(over) <= n/2 {
				l[i] = keys{over, base(r.plain.number)}
			}
		}
	}
	return &l, nil
}

// excepted returns the leaf of the row with the base in now and the exceptions in list. For a protocol with many spans in the base and
// few exceptions, the leaf has the exceptions only and leads on to the chains of the base.
func (r *tableRows) excepted() (*leaf, error) {
	l := *r.now.leaf
	for i, over := range r.overrides(r.now.number) {
		n := len(r.now.leaf[i].spans)
		switch {
		case i < bpf.L4ICMP && n > sharedFrom && len(over) <= n/2:
			l[i] = keys{over, base(r.now.number)}
		case len(over) > 0:
			var err error
			if l[i], err = keysOf(i, overlay(r.now.full[i], over), r.family); err != nil {
				return nil, err
			}
		}
	}
	return &l, nil
}

// overrides returns the exceptions of the row in list, as spans.
func (r *tableRows) overrides(base int) (over [bpf.L4Indexes][]span) {
	sports := int(r.t.Slot.Sports)
	get := func(col int) target {
		at, ok := slices.BinarySearchFunc(r.list, col, func(e table.Exception, col int) int { return cmp.Compare(e.Column, col) })
		if ok {
			return r.effects.of(r.list[at].Outcome)
		}
		return r.cell(base, col)
	}
	for at, last := 0, -1; at < len(r.list); at++ {
		col := r.list[at].Column / sports
		if col == last {
			continue
		}
		last = col
		for _, s := range r.spansOf[col] {
			over[s.index] = append(over[s.index], span{s.lo, s.hi, r.across(s.index, col, get)})
		}
	}
	for i := range over {
		slices.SortFunc(over[i], func(a, b span) int { return cmp.Compare(a.lo, b.lo) })
		merged := over[i][:0]
		for _, s := range over[i] {
			merged = join(merged, s)
		}
		over[i] = merged
	}
	return over
}

// difference returns the parts of spans whose target differs from that in others. Both cover all keys.
func difference(spans, others []span) (out []span) {
	at := 0
	for _, s := range spans {
		for lo := int(s.lo); lo <= int(s.hi); {
			o := others[at]
			hi := min(s.hi, o.hi)
			if s.to != o.to {
				out = join(out, span{uint16(lo), hi, s.to})
			}
			if hi == o.hi {
				at++
			}
			lo = int(hi) + 1
		}
	}
	return out
}

// overlay returns spans in which those of over replace what they cover. spans cover all keys.
func overlay(spans, over []span) []span {
	var out []span
	for _, s := range spans {
		at, hi := int(s.lo), int(s.hi)
		for len(over) > 0 && int(over[0].lo) <= hi {
			o := over[0]
			if int(o.lo) > at {
				out = join(out, span{uint16(at), o.lo - 1, s.to})
				at = int(o.lo)
			}
			end := min(int(o.hi), hi)
			out = join(out, span{uint16(at), uint16(end), o.to})
			at = end + 1
			if int(o.hi) > hi {
				break
			}
			over = over[1:]
		}
		if at <= hi {
			out = join(out, span{uint16(at), s.hi, s.to})
		}
	}
	return out
}
