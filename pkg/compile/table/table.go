// Package table compiles a match.Program and the classes of addresses into a decision table, in which the verdict of any
// packet is one cell, and evaluates it as the BPF programs do.
package table

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/model"
)

// cellsPerBlock is the number of values in a bpf.CellBlock.
const cellsPerBlock = len(bpf.CellBlock{}.Cell)

// Table is one compiled policy: a Program and, unless Slot has SLOT_INTERPRET, its decision table for the classes known
// when it was built. Its exported slices are the kernel's arrays, one element a value. Only SetRow, Enlarge and StandIn
// change a Table, and of these slices only Rows.
type Table struct {
	ID        ID // given by the compiler
	Direction model.Direction
	Program   *match.Program
	Slot      bpf.Slot // the shape; Classifier and Generation are left to who publishes it

	L4 []bpf.L4Page
	// Rows is class -> row. Its length is the capacity: a power of two, a quarter or more of it free for new classes.
	Rows     []bpf.CellBlock
	RowBlk   []bpf.CellBlock
	Cells    []bpf.CellBlock
	Outcomes []bpf.Outcome

	refers []uint32 // set numbers in Program, ascending
	byKind
	allows []uint32 // by block of cells: which of them allow
	seen   seen
}

// byKind has the rows by the properties of a class that the table distinguishes.
type byKind struct {
	kinds     map[string]int32 // numbers of properties
	rowOfKind []uint16
	standIns  map[string]uint16 // rows by which properties are judged that it has none for; nil: no such
}

// seen are entries of the match table.
type seen struct {
	used  bitmap // those that are seen in some cell
	holds bitmap // those whose address conditions hold for some class
	steps int    // that it took at most to look at them, see Limits.Steps
}

// Interpreted reports whether the table has no cells, so that the program walks the match table.
func (t *Table) Interpreted() bool { return t.Slot.Flags&bpf.SlotInterpret != 0 }

// Row returns the row of the class. Not ok: the table has none for what the class is a member of, and must be built
// again. An interpreted table needs no rows; the answer is 0.
func (t *Table) Row(c classes.Class) (row uint16, ok bool) {
	if t.Interpreted() {
		return 0, true
	}
	var buf [64]byte
	kind, ok := t.kinds[string(t.appendKind(buf[:0], &c))]
	if !ok {
		return 0, false
	}
	return t.rowOfKind[kind], true
}

// StandIn has JudgedBy give a class the row of another one until the table is built again. The table must have none for it, and that row must
// allow nothing that the policy denies to the class.
func (t *Table) StandIn(c classes.Class, row uint16) {
	if t.standIns == nil {
		t.standIns = map[string]uint16{}
	}
	t.standIns[string(t.appendKind(nil, &c))] = row
}

// JudgedBy returns the row by which the class is judged: its own, or one that stands in for it; or row 0, which denies.
func (t *Table) JudgedBy(c classes.Class) uint16 {
	if row, ok := t.Row(c); ok {
		return row
	}
	return t.standIns[string(t.appendKind(nil, &c))]
}

// Lacks reports whether Rows is too short for a class.
func (t *Table) Lacks(class uint32) bool {
	return !t.Interpreted() && int(class)/cellsPerBlock >= len(t.Rows)
}

// Enlarge makes room for a class and reports whether that took a longer Rows.
func (t *Table) Enlarge(class uint32) bool {
	if !t.Lacks(class) {
		return false
	}
	rows := make([]bpf.CellBlock, rowsFor(class))
	copy(rows, t.Rows)
	t.Rows = rows
	return true
}

// SetRow records the row of a class in Rows. False: the class is beyond its capacity, see Enlarge.
func (t *Table) SetRow(class uint32, row uint16) bool {
	if t.Interpreted() {
		return true
	}
	block := int(class) / cellsPerBlock
	if block >= len(t.Rows) {
		return false
	}
	t.Rows[block].Cell[int(class)%cellsPerBlock] = row
	return true
}

// RowOf returns the row of a class in Rows. Not ok: the class is beyond its capacity.
func (t *Table) RowOf(class uint32) (row uint16, ok bool) { return cell(t.Rows, int(class)) }

// Bytes is the size of the decision table in the kernel, without the match table.
func (t *Table) Bytes() int {
	return len(t.L4)*binary.Size(bpf.L4Page{}) +
		(len(t.Rows)+len(t.RowBlk)+len(t.Cells))*binary.Size(bpf.CellBlock{}) +
		len(t.Outcomes)*binary.Size(bpf.Outcome{})
}

// Steps is how many steps it took at most to make it, see Limits.
func (t *Table) Steps() int { return t.seen.steps }

// Refers returns the set numbers the table tells apart, ascending. The caller must not change it.
func (t *Table) Refers() []uint32 { return t.refers }

// Narrower reports whether some packet is allowed in row from and denied in row to. Of an interpreted table that is not
// known: true. Of a wide table it may be true although exceptions of both rows hide the difference of their bases.
func (t *Table) Narrower(from, to uint16) bool {
	c := Comparison{Table: t, Cells: math.MaxInt}
	return c.Narrower(from, to)
}

// Comparison compares rows of a table, and no more than so many cells of them. Rows of a wide table may have tens of thousands of exceptions.
type Comparison struct {
	Table *Table
	Cells int // that are left
}

// Narrower is as that of the table. If there are not enough cells left, it is true of rows that are not the same.
func (c *Comparison) Narrower(from, to uint16) bool {
	t := c.Table
	switch {
	case t.Interpreted():
		return true
	case from == to:
		return false
	}
	was, is := c.walk(from), c.walk(to)
	if c.Cells -= was.left + is.left + 1; was.base != is.base {
		c.Cells -= int(t.Slot.Blocks)
	}
	if c.Cells < 0 {
		c.Cells = 0
		return true
	}
	if was.base != is.base {
		for b := range int(t.Slot.Blocks) {
			if t.allows[t.block(uint16(was.base), b)]&^t.allows[t.block(uint16(is.base), b)] != 0 {
				return true
			}
		}
	}
	for was.left+is.left > 0 {
		col := min(was.next(), is.next())
		allowed, allows := was.allows(col), is.allows(col)
		if allowed && !allows {
			return true
		}
	}
	return false
}

func (c *Comparison) walk(row uint16) rowWalk {
	base, first, count, _ := c.Table.head(int(row))
	return rowWalk{c.Table, base, first, count}
}

// rowWalk goes through the exceptions of a row by ascending column.
type rowWalk struct {
	t              *Table
	base, at, left int
}

// next is the column of the next exception; without one it is behind all columns.
func (w *rowWalk) next() int {
	if w.left == 0 {
		return math.MaxInt
	}
	col, _, _ := w.t.exception(w.at)
	return col
}

// allows reports whether the row allows a column, and goes past the exception of that column. There may be none before it.
func (w *rowWalk) allows(col int) bool {
	var outcome uint16
	var ok bool
	if w.next() == col {
		_, outcome, ok = w.t.exception(w.at)
		w.at, w.left = w.at+1, w.left-1
	} else {
		outcome, ok = w.t.BaseOutcome(w.base, col)
	}
	return ok && int(outcome) < len(w.t.Outcomes) && w.t.Outcomes[outcome].Action == bpf.RuleAllow
}

// headCells is the number of cells that the head of a row of a wide table takes: its base, where its exceptions begin (low
// and high half), how many they are.
const headCells = 4

// head is where the row of a table is found: the row of blocks and, in a wide table, its exceptions, pairs of column and
// outcome by ascending column. Not ok: a part is missing.
func (t *Table) head(row int) (base, first, count int, ok bool) {
	if t.Slot.Flags&bpf.SlotWide == 0 {
		return row, 0, 0, true
	}
	at := int(t.Slot.Heads)*cellsPerBlock + row*headCells
	if at/cellsPerBlock >= len(t.RowBlk) {
		return 0, 0, 0, false
	}
	head := t.RowBlk[at/cellsPerBlock].Cell[at%cellsPerBlock:]
	return int(head[0]), int(head[1]) | int(head[2])<<16, int(head[3]), true
}

// exception is the i-th exception of all rows.
func (t *Table) exception(i int) (col int, outcome uint16, ok bool) {
	at := int(t.Slot.Exceptions)*cellsPerBlock + 2*i
	if at/cellsPerBlock >= len(t.Cells) {
		return 0, 0, false
	}
	pair := t.Cells[at/cellsPerBlock].Cell[at%cellsPerBlock:]
	return int(pair[0]), pair[1], true
}

// outcomeAt is the number in one cell of a row.
func (t *Table) outcomeAt(row, col int) (uint16, bool) {
	base, first, count, ok := t.head(row)
	if !ok {
		return 0, false
	}
	for low, high := 0, count; low < high; {
		mid := (low + high) / 2
		at, outcome, ok := t.exception(first + mid)
		switch {
		case !ok:
			return 0, false
		case at == col:
			return outcome, true
		case at < col:
			low = mid + 1
		default:
			high = mid
		}
	}
	block, ok := cell(t.RowBlk, base*int(t.Slot.Blocks)+col/cellsPerBlock)
	if !ok || int(block) >= len(t.Cells) {
		return 0, false
	}
	return t.Cells[block].Cell[col%cellsPerBlock], true
}

// block is the number of the b-th block of cells of a row.
func (t *Table) block(row uint16, b int) uint16 {
	at := int(row)*int(t.Slot.Blocks) + b
	return t.RowBlk[at/cellsPerBlock].Cell[at%cellsPerBlock]
}

// Shadowed returns the API rules that some known class fits by its addresses, but that never decide, pass or log
// because rules before them take every such packet. Rules whose sets have no members now are not among them. In the
// order of the match table; nil for an interpreted table.
func (t *Table) Shadowed() []model.RuleID {
	if t.Interpreted() {
		return nil
	}
	used, holds := map[model.RuleID]bool{}, map[model.RuleID]bool{}
	for i, id := range t.Program.IDs {
		if t.Program.Rules[i].Action == bpf.RuleSkip {
			continue
		}
		used[id] = used[id] || t.seen.used.has(i)
		holds[id] = holds[id] || t.seen.holds.has(i)
	}
	var out []model.RuleID
	for _, id := range t.Program.IDs {
		if id.Point == model.AtRule && holds[id] && !used[id] {
			out = append(out, id)
			holds[id] = false
		}
	}
	return out
}

// appendKind appends the properties of a class that the table distinguishes: its family and those of its sets that
// rules refer to.
func (t *Table) appendKind(key []byte, c *classes.Class) []byte {
	key = append(key, c.Family)
	if t.knowsNone(c) {
		return key // as most classes are for a small policy
	}
	for _, s := range c.Sets {
		if _, ok := slices.BinarySearch(t.refers, s); ok {
			key = binary.LittleEndian.AppendUint32(key, s)
		}
	}
	return key
}

// knowsNone reports whether all sets of a class are before, or after, those that rules refer to.
func (t *Table) knowsNone(c *classes.Class) bool {
	n := len(c.Sets)
	return n == 0 || isApart(t.refers, c.Sets[0], c.Sets[n-1])
}

// isApart reports whether sets from first to last, 0 for none, are all before, or after, those that rules refer to.
func isApart(refers []uint32, first, last uint32) bool {
	r := len(refers)
	return first == 0 || r == 0 || last < refers[0] || first > refers[r-1]
}

// ID is the compiler's name of one table. Never reused while an agent runs; 0 is none.
type ID uint32
