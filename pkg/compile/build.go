package compile

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/margay-project/margay/bpf"
)

// Limits bound a decision table; a policy past one of them is interpreted. Zero values: 65,535, and 16 MiB.
type Limits struct {
	Rows, Blocks, Outcomes int
	Bytes                  int  // as Table.Bytes counts
	Interpret              bool // interpret every policy
}

const (
	maxIDs          = 0xffff   // row, block and outcome numbers are u16
	defaultMaxBytes = 16 << 20 // of one table
	// What compiling may cost, so that no policy keeps the agent busy for more than about a second.
	maxColumnBytes = 64 << 20 // lists of entries by column
	maxWork        = 1 << 28  // steps to fill the cells, at worst
)

func (l Limits) withDefaults() Limits {
	l.Rows, l.Blocks, l.Outcomes = bounded(l.Rows, maxIDs), bounded(l.Blocks, maxIDs), bounded(l.Outcomes, maxIDs)
	l.Bytes = cmp.Or(l.Bytes, defaultMaxBytes)
	return l
}

func bounded(limit, most int) int {
	if limit == 0 {
		return most
	}
	return min(limit, most)
}

// Build compiles a Program for the classes known now; ClassNone4 and ClassNone6 are always among them. Past a limit the
// Table is interpreted: it has no arrays but the Program's. Equal input gives an equal Table, whatever the order of
// classes. The Table keeps p.
func Build(p *Program, classes []Class, lim Limits) *Table {
	lim = lim.withDefaults()
	if !lim.Interpret {
		b := &builder{lim: lim, t: newTable(p), rules: p.Rules}
		if b.build(withNone(classes)) {
			return b.t
		}
	}
	t := newTable(p)
	t.Slot.Flags = bpf.SlotInterpret
	return t
}

func newTable(p *Program) *Table {
	t := &Table{
		Direction: p.IDs[len(p.IDs)-1].Direction,
		Program:   p,
		Slot:      bpf.Slot{Rules: uint32(len(p.Rules)), Sports: 1},
	}
	for i := range p.Rules {
		r := &p.Rules[i]
		t.refers = append(append(t.refers, r.In[:]...), r.NotIn[:]...)
	}
	slices.Sort(t.refers)
	t.refers = slices.Compact(t.refers)
	if len(t.refers) > 0 && t.refers[0] == 0 {
		t.refers = t.refers[1:]
	}
	return t
}

// withNone returns the classes by id, with those that have no sets.
func withNone(classes []Class) []Class {
	all := append(slices.Clone(classes), Class{ID: ClassNone4, Family: 4}, Class{ID: ClassNone6, Family: 6})
	slices.SortFunc(all, func(a, b Class) int { return cmp.Compare(a.ID, b.ID) })
	return slices.CompactFunc(all, func(a, b Class) bool { return a.ID == b.ID })
}

// builder compiles one table.
type builder struct {
	lim   Limits
	t     *Table
	rules []bpf.Rule

	columns columns
	sports  sportClasses

	outcomes  map[bpf.Outcome]uint16
	plain     []uint16 // by entry: its outcome without passes and logs; 0: not known yet
	blocks    map[bpf.CellBlock]uint16
	lines     map[string]uint16 // blocks of a row -> row
	rowBlocks []uint16          // all rows' blocks
	full      bool              // a limit was met
	key       []byte            // scratch
}

func (b *builder) build(classes []Class) bool {
	n := len(b.rules)
	if !b.columns.find(b.rules) || !b.sports.find(b.rules) {
		return false
	}
	width := len(b.columns.list) * len(b.sports.list)
	if width > maxIDs {
		return false
	}
	t := b.t
	t.used, t.holds, t.kinds = newBitmap(n), newBitmap(n), map[string]int32{}
	t.Slot.Columns, t.Slot.Sports = uint32(width), uint32(len(b.sports.list))
	t.Slot.Blocks = uint32((width + cellsPerBlock - 1) / cellsPerBlock)
	if len(b.sports.list) > 1 {
		t.Slot.Flags |= bpf.SlotSourcePorts
	}
	b.plain = make([]uint16, n)
	b.outcomes, b.blocks, b.lines = map[bpf.Outcome]uint16{}, map[bpf.CellBlock]uint16{}, map[string]uint16{}
	b.outcome(noOutcome())
	b.row(make([]uint16, int(t.Slot.Blocks)*cellsPerBlock))
	b.classes(classes)
	if b.full {
		return false
	}
	b.pages()
	t.Slot.Rows = uint32(len(b.lines))
	t.RowBlk = pack(b.rowBlocks)
	t.allows = make([]uint32, len(t.Cells))
	for i := range t.Cells {
		for j, o := range t.Cells[i].Cell {
			if t.Outcomes[o].Action == bpf.RuleAllow {
				t.allows[i] |= 1 << j
			}
		}
	}
	return t.Bytes() <= b.lim.Bytes
}

// classes gives every class its row; those the rules cannot tell apart get the same.
func (b *builder) classes(classes []Class) {
	t := b.t
	most := classes[len(classes)-1].ID
	needed := int(most)/cellsPerBlock + 1
	capacity := 1 << bits.Len(uint((needed*4+2)/3-1))
	if capacity*binary.Size(bpf.CellBlock{}) > b.lim.Bytes {
		b.full = true
		return
	}
	t.Rows = make([]bpf.CellBlock, capacity)
	kinds := make([]int32, len(classes))
	for i, c := range classes {
		kinds[i] = b.kind(c)
	}
	if len(t.kinds)*b.columns.work(len(b.rules))*len(b.sports.list) > maxWork {
		b.full = true
		return
	}
	t.rowOfKind = make([]uint16, len(t.kinds))
	entries := newAddressIndex(b.rules, t.refers)
	cells := newCellFiller(b)
	for i, c := range classes {
		row := &t.rowOfKind[kinds[i]]
		if *row == 0 {
			holds := entries.holding(c)
			for i, w := range holds {
				t.holds[i] |= w
			}
			if *row = b.row(cells.fill(holds)); b.full {
				return
			}
		}
		t.SetRow(c.ID, *row)
	}
}

// kind numbers the classes by what the table can tell of them.
func (b *builder) kind(c Class) int32 {
	b.key = b.t.appendKind(b.key[:0], c)
	kind, ok := b.t.kinds[string(b.key)]
	if !ok {
		kind = int32(len(b.t.kinds))
		b.t.kinds[string(b.key)] = kind
	}
	return kind
}

// row returns the row with these cells, which are as many as a row's blocks hold.
func (b *builder) row(cells []uint16) uint16 {
	start := len(b.rowBlocks)
	line := make([]byte, 0, len(cells)/cellsPerBlock*2)
	for at := 0; at < len(cells); at += cellsPerBlock {
		block := b.block(bpf.CellBlock{Cell: [32]uint16(cells[at:])})
		b.rowBlocks = append(b.rowBlocks, block)
		line = binary.LittleEndian.AppendUint16(line, block)
	}
	if row, ok := b.lines[string(line)]; ok {
		b.rowBlocks = b.rowBlocks[:start]
		return row
	}
	if len(b.lines) >= b.lim.Rows || len(b.rowBlocks)*2 > b.lim.Bytes {
		b.full = true
		return 0
	}
	row := uint16(len(b.lines))
	b.lines[string(line)] = row
	return row
}

func (b *builder) block(cells bpf.CellBlock) uint16 {
	n, ok := b.blocks[cells]
	if ok {
		return n
	}
	if len(b.t.Cells) >= b.lim.Blocks {
		b.full = true
		return 0
	}
	n = uint16(len(b.t.Cells))
	b.blocks[cells] = n
	b.t.Cells = append(b.t.Cells, cells)
	return n
}

func (b *builder) outcome(o bpf.Outcome) uint16 {
	n, ok := b.outcomes[o]
	if ok {
		return n
	}
	if len(b.t.Outcomes) >= b.lim.Outcomes {
		b.full = true
		return 0
	}
	n = uint16(len(b.t.Outcomes))
	b.outcomes[o] = n
	b.t.Outcomes = append(b.t.Outcomes, o)
	return n
}

// pack lays values out as the kernel's array has them.
func pack(values []uint16) []bpf.CellBlock {
	out := make([]bpf.CellBlock, (len(values)+cellsPerBlock-1)/cellsPerBlock)
	for i, v := range values {
		out[i/cellsPerBlock].Cell[i%cellsPerBlock] = v
	}
	return out
}
