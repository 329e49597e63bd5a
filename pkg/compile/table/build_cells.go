package table

import (
	"slices"
	"sort"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/compile/match"
)

// cellFiller computes the cells of one row after another. Within a group, most columns differ from each other only by
// entries that come after the one that decides; the order of columns puts those at the end of the group.
type cellFiller struct {
	b       *builder
	n       int      // entries
	first   []int    // by column: its first own entry, or n
	line    []uint16 // the cells
	holds   bitmap   // entries that hold for the row and source port class
	generic []int32  // of those, the group's, ascending
	walked  int      // entries, by the last walk
	trail   []int    // entries the last walk noted
}

func newCellFiller(b *builder) *cellFiller {
	f := &cellFiller{
		b: b, n: len(b.rules),
		line:  make([]uint16, int(b.t.Slot.Blocks)*cellsPerBlock),
		holds: newBitmap(len(b.rules)),
	}
	f.first = make([]int, 0, len(b.columns.list))
	for i := range b.columns.list {
		f.first = append(f.first, b.columns.list[i].first(f.n))
	}
	b.spend(len(f.first) / 4)
	return f
}

// fill returns the cells of the row for whose classes the entries in holds hold. The result is valid until the next
// call.
func (f *cellFiller) fill(holds bitmap) []uint16 {
	sports := f.b.sports.list
	for s, fits := range sports {
		for w := range f.holds {
			f.holds[w] = holds[w] & fits[w]
		}
		for g, entries := range f.b.columns.groups {
			if !f.b.spend(len(f.holds) / 16) {
				return f.line
			}
			f.generic = appendBoth(f.generic[:0], f.holds, entries)
			f.group(f.b.columns.bounds[g], f.b.columns.bounds[g+1], s)
		}
	}
	// Cells past the last column are never read; like the last one they make the most blocks equal.
	width := len(f.first) * len(sports)
	for i := width; i < len(f.line); i++ {
		f.line[i] = f.line[width-1]
	}
	return f.line
}

// group fills the cells of columns from to end, which are of one group, for one source port class.
func (f *cellFiller) group(from, end, sport int) {
	if from == end {
		return
	}
	stride := len(f.b.sports.list)
	decides := int(f.walk(nil).Rule)
	cut := from + sort.SearchInts(f.first[from:end], decides)
	for i := from; i < cut; i++ {
		// Mostly the column's first entry decides. It is known to be one that does if it has decided before.
		first := f.first[i]
		if i%64 == 0 && !f.b.spend(16) {
			return
		}
		if o := f.b.plain[first]; o != 0 && first < int(f.generic[0]) && f.holds.has(first) {
			f.line[i*stride+sport] = o
			continue
		}
		f.line[i*stride+sport] = f.cell(&f.b.columns.list[i])
	}
	if cut == end {
		return
	}
	rest := f.cell(nil)
	for i := cut; i < end; i++ {
		f.line[i*stride+sport] = rest
	}
}

// cell returns the outcome's number for the group's entries and those of the column.
func (f *cellFiller) cell(own *column) uint16 {
	trace := f.walk(own)
	f.b.spend(2 + f.walked/2)
	for _, i := range f.trail {
		f.b.t.seen.used.set(i)
	}
	if trace.Nlogs > 0 || trace.Npasses > 0 || trace.Rule == match.NoRule {
		return f.b.outcome(trace)
	}
	plain := &f.b.plain[trace.Rule]
	if *plain == 0 {
		*plain = f.b.newOutcome(trace) // no other entry has it
	}
	return *plain
}

// walk is Interpret over the merged entries.
func (f *cellFiller) walk(own *column) bpf.Outcome {
	var trace bpf.Outcome
	f.trail, f.walked = f.trail[:0], 0
	iter := ownEntries{f: f}
	if own != nil {
		iter.entries, iter.dense = own.entries, own.dense
	}
	generic := f.generic
	nextGeneric := f.n
	if len(generic) > 0 {
		nextGeneric = int(generic[0])
	}
	nextOwn := iter.next(0)
	for {
		i := min(nextGeneric, nextOwn)
		if i == f.n {
			return match.NoOutcome()
		}
		r := &f.b.rules[i]
		f.walked++
		if r.Action != bpf.RuleSkip {
			f.trail = append(f.trail, i)
		}
		next, done := match.Step(&trace, r, i)
		if done {
			return trace
		}
		if nextGeneric < next {
			at, _ := slices.BinarySearch(generic, int32(next))
			generic = generic[at:]
			nextGeneric = f.n
			if len(generic) > 0 {
				nextGeneric = int(generic[0])
			}
		}
		if nextOwn < next {
			nextOwn = iter.next(next)
		}
	}
}

// ownEntries walks the entries of a column that hold for the row.
type ownEntries struct {
	f       *cellFiller
	entries []int32
	dense   bitmap
}

// next returns the first of them from i on, or n. i must not decrease from call to call.
func (o *ownEntries) next(i int) int {
	if o.dense != nil {
		return nextBoth(o.dense, o.f.holds, i, o.f.n)
	}
	for len(o.entries) > 0 {
		if e := int(o.entries[0]); e >= i && o.f.holds.has(e) {
			return e
		}
		o.entries = o.entries[1:]
	}
	return o.f.n
}
