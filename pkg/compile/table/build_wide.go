package table

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/compile/classes"
)

// A wide table is for many rows and many columns, of which most rows differ from some other row, their base, in a few
// cells only: those are the row's exceptions. A set of addresses is light if the entries that refer to it fit few columns,
// and heavy else. Classes that are in the same heavy sets have the same base; the light sets make the exceptions.

// widePlan says how the rows of a wide table come about.
type widePlan struct {
	steps, bytes int // what the table takes, at most
	light        []bool
	x            *wideIndex
}

// wideIndex is what the plans for one table are made of.
type wideIndex struct {
	entries [][]int32 // by index in refers: the entries that refer to the set
	sets    [][]int32 // by kind: indexes in refers of its sets
	cells   []int     // by index in refers: the columns that those entries fit
	steps   []int     // by index in refers: what looking at all of them takes
	first   []int32   // entry -> where its columns begin in columns
	columns []int32
}

// planWide returns the plan that takes the fewest steps. A dense row takes perRow.
func (b *builder) planWide(classes []classes.Class, perRow int) *widePlan {
	x := b.indexWide(classes)
	best := &widePlan{steps: math.MaxInt}
	for _, most := range []int{16, 256, 4096, 1 << 16} {
		if p := b.planBelow(classes, x, perRow, most); p.steps < best.steps {
			best = p
		}
	}
	return best
}

func (b *builder) indexWide(classes []classes.Class) *wideIndex {
	refers, n := b.t.refers, len(b.rules)
	x := &wideIndex{
		entries: make([][]int32, len(refers)), sets: make([][]int32, len(b.of)),
		cells: make([]int, len(refers)), steps: make([]int, len(refers)),
	}
	x.invert(&b.columns, n)
	groups := b.groupCosts()
	for i := range b.rules {
		cells, steps := 0, 0
		for _, col := range x.columns[x.first[i]:x.first[i+1]] {
			cells++
			steps += b.columns.steps(int(col), n)
		}
		for g, fits := range b.columns.groups {
			if fits.has(i) {
				cells, steps = cells+groups[g].cells, steps+groups[g].steps
			}
		}
		for _, number := range slices.Concat(b.rules[i].In[:], b.rules[i].NotIn[:]) {
			s, ok := slices.BinarySearch(refers, number)
			if ok && (len(x.entries[s]) == 0 || last(x.entries[s]) != int32(i)) {
				x.entries[s] = append(x.entries[s], int32(i))
				x.cells[s] += cells
				x.steps[s] += 1 + steps
			}
		}
	}
	for kind, i := range b.of {
		for _, number := range classes[i].Sets {
			if s, ok := slices.BinarySearch(refers, number); ok {
				x.sets[kind] = append(x.sets[kind], int32(s))
			}
		}
	}
	return x
}

// groupCosts says for each group how many columns it has, and what looking at them takes.
func (b *builder) groupCosts() []struct{ cells, steps int } {
	all := make([]struct{ cells, steps int }, len(b.columns.groups))
	for col := range b.columns.list {
		g := &all[b.columns.list[col].group]
		g.cells, g.steps = g.cells+1, g.steps+b.columns.steps(col, len(b.rules))
	}
	return all
}

// invert lists the columns of every entry with ports.
func (x *wideIndex) invert(c *columns, n int) {
	x.first = make([]int32, n+1)
	for i := range c.list {
		for _, e := range c.list[i].entries {
			x.first[e+1]++
		}
	}
	for i := range n {
		x.first[i+1] += x.first[i]
	}
	x.columns = make([]int32, x.first[n])
	at := slices.Clone(x.first)
	for i := range c.list {
		for _, e := range c.list[i].entries {
			x.columns[at[e]] = int32(i)
			at[e]++
		}
	}
}

// columnsOf calls do for each column that an entry fits.
func (b *builder) columnsOf(x *wideIndex, entry int, do func(col int)) {
	for _, col := range x.columns[x.first[entry]:x.first[entry+1]] {
		do(int(col))
	}
	for g, fits := range b.columns.groups {
		if fits.has(entry) {
			for col := b.columns.bounds[g]; col < b.columns.bounds[g+1]; col++ {
				do(col)
			}
		}
	}
}

// planBelow is the plan in which sets are light whose entries fit no more than so many columns.
func (b *builder) planBelow(classes []classes.Class, x *wideIndex, perRow, most int) *widePlan {
	p := &widePlan{light: make([]bool, len(x.cells)), x: x}
	for s, cells := range x.cells {
		p.light[s] = cells <= most
	}
	sports, n := len(b.sports.list), len(b.rules)
	bases, exceptions := map[string]bool{}, 0
	var key []byte
	for kind := range b.of {
		key = p.baseKey(key[:0], classes[b.of[kind]].Family, kind)
		bases[string(key)] = true
		p.steps += 32
		if sports > 1 {
			p.steps += sports * n / 64
		}
		for _, s := range x.sets[kind] {
			if p.light[s] {
				p.steps += x.steps[s] * sports
				exceptions += x.cells[s] * sports
			}
		}
	}
	p.steps += len(bases) * (perRow + n/8)
	p.bytes = len(bases)*int(b.blocksPerRow())*2 + exceptions*4 + len(b.of)*8
	return p
}

// baseKey appends what the base of a kind depends on.
func (p *widePlan) baseKey(key []byte, family uint8, kind int) []byte {
	key = append(key, family)
	for _, s := range p.x.sets[kind] {
		if !p.light[s] {
			key = binary.LittleEndian.AppendUint32(key, uint32(s))
		}
	}
	return key
}

// wideFiller makes the rows of a wide table.
type wideFiller struct {
	*cellFiller
	plan    *widePlan
	now     bitmap    // entries that hold for the row in hand
	changed []int32   // those of them, or not of them, that it is not so with for the base
	generic [][]int32 // by group: entries that hold for the base
	spare   bitmap
	columns []int
	list    []uint16 // exceptions of the row in hand: column, outcome
}

// wideRows gives every kind its row.
func (b *builder) wideRows(classes []classes.Class, plan *widePlan) {
	t := b.t
	t.rowOfKind = make([]uint16, len(b.of))
	x := newAddressIndex(b.rules, t.refers)
	w := &wideFiller{cellFiller: newCellFiller(b), plan: plan, generic: make([][]int32, len(b.columns.groups))}
	w.spare = w.holds
	heads, exceptions, rows := make([]uint16, headCells), []uint16(nil), make(map[string]uint16, len(b.of))
	for _, kinds := range b.byBase(classes, plan) {
		base := b.row(w.base(x, w.baseClass(classes[b.of[kinds[0]]], kinds[0])))
		for _, kind := range kinds {
			w.except(classes[b.of[kind]], kind)
			key := binary.LittleEndian.AppendUint16(nil, base)
			for _, v := range w.list {
				key = binary.LittleEndian.AppendUint16(key, v)
			}
			row, ok := rows[string(key)]
			if !ok {
				row = uint16(len(rows) + 1)
				at := len(exceptions) / 2
				heads = append(heads, base, uint16(at), uint16(at>>16), uint16(len(w.list)/2))
				exceptions = append(exceptions, w.list...)
				rows[string(key)] = row
			}
			t.rowOfKind[kind] = row
			if b.full = b.full || len(rows) >= b.lim.Rows || len(exceptions)*2 > b.lim.Bytes; b.full {
				return
			}
		}
	}
	t.RowBlk, t.Slot.Heads = pack(b.rowBlocks), uint32(len(b.rowBlocks)+cellsPerBlock-1)/uint32(cellsPerBlock)
	t.RowBlk = append(t.RowBlk, pack(heads)...)
	t.Slot.Exceptions = uint32(len(t.Cells))
	t.Cells = append(t.Cells, pack(exceptions)...)
	t.Slot.Rows = uint32(len(heads) / headCells)
	t.Slot.Flags |= bpf.SlotWide
}

// byBase lists the kinds base by base.
func (b *builder) byBase(classes []classes.Class, plan *widePlan) [][]int {
	index := map[string]int{}
	var list [][]int
	var key []byte
	for kind, i := range b.of {
		key = plan.baseKey(key[:0], classes[i].Family, kind)
		at, ok := index[string(key)]
		if !ok {
			at = len(list)
			index[string(key)] = at
			list = append(list, nil)
		}
		list[at] = append(list[at], kind)
	}
	return list
}

// baseClass is a class that is in the heavy sets only.
func (w *wideFiller) baseClass(c classes.Class, kind int) classes.Class {
	base := classes.Class{Family: c.Family}
	for _, s := range w.plan.x.sets[kind] {
		if !w.plan.light[s] {
			base.Sets = append(base.Sets, w.b.t.refers[s])
		}
	}
	return base
}

// base returns the cells of a base and makes it the one that except compares with.
func (w *wideFiller) base(x *addressIndex, c classes.Class) []uint16 {
	w.now = slices.Clone(x.holding(c))
	w.b.t.holds.add(w.now)
	line := w.fill(w.now)
	for g, entries := range w.b.columns.groups {
		w.generic[g] = appendBoth(w.generic[g][:0], w.now, entries)
	}
	return line
}

// except puts the exceptions of a kind's row into list.
func (w *wideFiller) except(c classes.Class, kind int) {
	w.flip(c, kind)
	w.columns = w.columns[:0]
	for _, e := range w.changed {
		w.b.columnsOf(w.plan.x, int(e), func(col int) { w.columns = append(w.columns, col) })
	}
	slices.Sort(w.columns)
	w.columns = slices.Compact(w.columns)
	w.list = w.list[:0]
	for s, fits := range w.b.sports.list {
		w.exceptOf(s, fits)
	}
	if len(w.b.sports.list) > 1 {
		sortPairs(w.list)
	}
	for _, e := range w.changed { // back to the base
		if w.now.has(int(e)) {
			w.now.clear(int(e))
		} else {
			w.now.set(int(e))
		}
	}
}

// flip finds the entries that hold for the class and not for its base, or the other way round.
func (w *wideFiller) flip(c classes.Class, kind int) {
	w.changed = w.changed[:0]
	for _, s := range w.plan.x.sets[kind] {
		if !w.plan.light[s] {
			continue
		}
		for _, e := range w.plan.x.entries[s] {
			r := &w.b.rules[e]
			holds := r.Flags&familyFlag(c.Family) != 0 && c.HasAll(r.In[:]) && c.HasNone(r.NotIn[:])
			if holds == w.now.has(int(e)) {
				continue
			}
			w.changed = append(w.changed, e)
			if holds {
				w.now.set(int(e))
				w.b.t.holds.set(int(e))
			} else {
				w.now.clear(int(e))
			}
		}
	}
}

// exceptOf does so for one source port class.
func (w *wideFiller) exceptOf(sport int, fits bitmap) {
	stride, f := len(w.b.sports.list), w.cellFiller
	f.holds = w.now
	if stride > 1 {
		f.holds = w.spare
		for i := range f.holds {
			f.holds[i] = w.now[i] & fits[i]
		}
	}
	group := -1
	for _, col := range w.columns {
		own := &w.b.columns.list[col]
		if own.group != group {
			group = own.group
			f.generic = w.genericOf(group, stride > 1)
		}
		at := col*stride + sport
		if o := f.cell(own); o != f.line[at] {
			w.list = append(w.list, uint16(at), o)
		}
	}
	f.generic, f.holds = nil, w.spare
}

// genericOf lists the entries of a group that hold for the row in hand.
func (w *wideFiller) genericOf(group int, again bool) []int32 {
	entries := w.b.columns.groups[group]
	if again || slices.ContainsFunc(w.changed, func(e int32) bool { return entries.has(int(e)) }) {
		return appendBoth(nil, w.cellFiller.holds, entries)
	}
	return w.generic[group]
}

// sortPairs sorts exceptions by column.
func sortPairs(list []uint16) {
	pairs := make([]uint32, len(list)/2)
	for i := range pairs {
		pairs[i] = uint32(list[2*i])<<16 | uint32(list[2*i+1])
	}
	slices.Sort(pairs)
	for i, p := range pairs {
		list[2*i], list[2*i+1] = uint16(p>>16), uint16(p)
	}
}

func last[T any](list []T) T { return list[len(list)-1] }
