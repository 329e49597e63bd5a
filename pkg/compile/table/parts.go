package table

import "github.com/margay-project/margay/bpf"

// Exception is a column in which a row differs from its base.
type Exception struct {
	Column  int
	Outcome bpf.Outcome
}

// Base returns the row of blocks that a row is made of. Rows of a table that is not wide have one each.
func (t *Table) Base(row uint16) (base int, ok bool) {
	base, _, _, ok = t.head(int(row))
	return base, ok
}

// Exceptions appends the exceptions of a row to list, by ascending column. Only rows of wide tables have some.
func (t *Table) Exceptions(list []Exception, row uint16) []Exception {
	_, first, count, _ := t.head(int(row))
	for i := range count {
		col, outcome, ok := t.exception(first + i)
		if ok && int(outcome) < len(t.Outcomes) {
			list = append(list, Exception{col, t.Outcomes[outcome]})
		}
	}
	return list
}

// BaseOutcome is the number in Outcomes of one column of a base.
func (t *Table) BaseOutcome(base, column int) (outcome uint16, ok bool) {
	block, ok := cell(t.RowBlk, base*int(t.Slot.Blocks)+column/cellsPerBlock)
	if !ok || int(block) >= len(t.Cells) {
		return 0, false
	}
	outcome = t.Cells[block].Cell[column%cellsPerBlock]
	return outcome, int(outcome) < len(t.Outcomes)
}

// ColumnSpan is a range of keys of one protocol index that have the same column.
type ColumnSpan struct {
	Lo, Hi uint16
	Column int
}

// Spans are the columns of all keys of a protocol index, ascending: of destination ports, types or protocols, or those of
// source ports. A table without source ports has column 0 for all of them.
func (t *Table) Spans(index int, source bool) []ColumnSpan {
	last := 0xffff
	if index == bpf.L4Other {
		last = 0xff
	}
	if source && t.Slot.Flags&bpf.SlotSourcePorts == 0 {
		return []ColumnSpan{{Hi: uint16(last)}}
	}
	first := index
	if source {
		first += bpf.L4Indexes
	}
	var out []ColumnSpan
	for key := 0; key <= last; key++ {
		col, ok := t.l4(first, uint16(key))
		if !ok {
			col = 0
		}
		if n := len(out); n > 0 && out[n-1].Column == col {
			out[n-1].Hi = uint16(key)
			continue
		}
		out = append(out, ColumnSpan{uint16(key), uint16(key), col})
	}
	return out
}
