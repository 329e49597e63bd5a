package table

import (
	"encoding/binary"
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/compile/classes"
)

// wideRows are rows that say in which cells they differ from another.
type wideRows struct {
	*cellFiller
	plan    *widePlan
	index   *addressIndex
	now     bitmap    // entries that hold for the row in hand
	changed []int32   // entries that hold for exactly one of this row and the base
	generic [][]int32 // by group: entries that hold for the base
	spare   bitmap
	columns []int
	list    []uint16 // exceptions of the row in hand: column, outcome

	heads, exceptions []uint16          // of all rows
	rows              map[string]uint16 // base and exceptions -> row
}

func newWideRows(b *builder, plan *widePlan) *wideRows {
	w := &wideRows{cellFiller: newCellFiller(b), plan: plan, index: newAddressIndex(b),
		generic: make([][]int32, len(b.columns.groups)), heads: make([]uint16, headCells), rows: make(map[string]uint16, len(b.of))}
	w.spare = w.holds
	return w
}

func (w *wideRows) known() {
	b := w.b
	for _, kinds := range b.byBase(w.plan) {
		if b.stopped {
			return
		}
		base := b.row(w.base(w.baseClass(b.of[kinds[0]], kinds[0])))
		for _, kind := range kinds {
			w.except(b.of[kind], kind)
			if b.t.rowOfKind[kind] = w.row(base); b.full || b.stopped {
				return
			}
		}
	}
}

// late makes a row without exceptions.
func (w *wideRows) late(c classes.Class) uint16 {
	base := w.b.row(w.base(c))
	w.list = w.list[:0]
	return w.row(base)
}

// row is that with a base and the exceptions in list.
func (w *wideRows) row(base uint16) uint16 {
	key := binary.LittleEndian.AppendUint16(nil, base)
	for _, v := range w.list {
		key = binary.LittleEndian.AppendUint16(key, v)
	}
	row, ok := w.rows[string(key)]
	if !ok {
		row = uint16(len(w.rows) + 1)
		at := len(w.exceptions) / 2
		w.heads = append(w.heads, base, uint16(at), uint16(at>>16), uint16(len(w.list)/2))
		w.exceptions = append(w.exceptions, w.list...)
		w.rows[string(key)] = row
	}
	w.b.spend(8 + len(w.list)/2)
	w.b.full = w.b.full || len(w.rows) >= w.b.lim.Rows || len(w.exceptions)*2 > w.b.lim.Bytes
	return row
}

func (w *wideRows) finish() {
	b, t := w.b, w.b.t
	t.RowBlk, t.Slot.Heads = pack(b.rowBlocks), uint32(len(b.rowBlocks)+cellsPerBlock-1)/uint32(cellsPerBlock)
	t.RowBlk = append(t.RowBlk, pack(w.heads)...)
	t.Slot.Exceptions = uint32(len(t.Cells))
	t.Cells = append(t.Cells, pack(w.exceptions)...)
	t.Slot.Rows = uint32(len(w.heads) / headCells)
	t.Slot.Flags |= bpf.SlotWide
}

// byBase lists the kinds base by base. If the builder is stopped, some are missing.
func (b *builder) byBase(plan *widePlan) [][]int {
	index := map[string]int{}
	var list [][]int
	var key []byte
	for kind, c := range b.of {
		if kind%64 == 63 && !b.spend(256) {
			break
		}
		key = plan.baseKey(key[:0], c.Family, kind)
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
func (w *wideRows) baseClass(c classes.Class, kind int) classes.Class {
	base := classes.Class{Family: c.Family}
	for _, s := range w.plan.x.sets[kind] {
		if !w.plan.light[s] {
			base.Sets = append(base.Sets, w.b.t.refers[s])
		}
	}
	return base
}

// base returns the cells of a base and makes it the one that except compares with.
func (w *wideRows) base(c classes.Class) []uint16 {
	w.now = slices.Clone(w.index.holding(c))
	w.b.t.seen.holds.add(w.now)
	line := w.fill(w.now)
	for g, entries := range w.b.columns.groups {
		w.generic[g] = appendBoth(w.generic[g][:0], w.now, entries)
	}
	return line
}

// except puts the exceptions of a kind's row into list.
func (w *wideRows) except(c classes.Class, kind int) {
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
func (w *wideRows) flip(c classes.Class, kind int) {
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
				w.b.t.seen.holds.set(int(e))
			} else {
				w.now.clear(int(e))
			}
		}
	}
}

// exceptOf does so for one source port class.
func (w *wideRows) exceptOf(sport int, fits bitmap) {
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
func (w *wideRows) genericOf(group int, again bool) []int32 {
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
