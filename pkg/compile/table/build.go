package table

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/match"
)

// Limits bound a compiled policy. Zero values: 65,535 numbers, and MaxTableBytes, MaxSteps and MaxWalk.
type Limits struct {
	Rows, Blocks, Outcomes int
	Bytes                  int    // as Table.Bytes counts
	Steps                  int    // of compiling, see MaxSteps
	Walk                   int    // of an interpreted policy, see MaxWalk
	Open                   int    // in one plan, see MaxOpen; 0: MaxOpen
	Room                   uint32 // the table has room for classes up to this one, known or not
	// For tests: Interpret every policy, give every policy a Wide table.
	Interpret, Wide bool
}

// What the policy of one direction of an endpoint may cost.
const (
	// MaxTableBytes is the size of a decision table, without the match table.
	MaxTableBytes = 16 << 20
	// MaxSteps is what compiling may take: cells to fill and entries to look at. A step takes 1 to 3 ns, so that no
	// policy keeps the agent from others for more than 100 ms.
	MaxSteps = 1 << 25
	// MaxWalk is the longest walk of a policy that has no table, as walkOf counts: a verdict then takes less than 10 µs.
	MaxWalk = 256

	maxIDs = 0xffff // row, block and outcome numbers are u16
	// maxColumnBytes is for the lists of entries by column, while compiling.
	maxColumnBytes = 16 << 20
	// denseSteps are so few that no other kind of table is worth a thought.
	denseSteps = 1 << 22
)

func (l Limits) withDefaults() Limits {
	l.Rows, l.Blocks, l.Outcomes = bounded(l.Rows, maxIDs), bounded(l.Blocks, maxIDs), bounded(l.Outcomes, maxIDs)
	l.Bytes, l.Steps, l.Walk = cmp.Or(l.Bytes, MaxTableBytes), cmp.Or(l.Steps, MaxSteps), cmp.Or(l.Walk, MaxWalk)
	return l
}

func bounded(limit, most int) int {
	if limit == 0 {
		return most
	}
	return min(limit, most)
}

// Build compiles a Program for the classes known now; classes.None4 and classes.None6 are always among them. If there are many
// rows and many columns the Table is a wide one. If no table is within the limits, the policy is interpreted: the Table has
// no arrays but the Program's. Nil: even that is past its limit. What a table would cost is estimated before it is made.
// Equal input gives an equal Table, whatever the order of classes. The Table keeps p.
func Build(p *match.Program, classes []classes.Class, lim Limits) *Table {
	lim = lim.withDefaults()
	if !lim.Interpret {
		if t := buildTable(p, withNone(classes), lim); t != nil {
			return t
		}
		if walkOf(p.Rules) > lim.Walk {
			return nil
		}
	}
	t := newTable(p)
	t.Slot.Flags = bpf.SlotInterpret
	return t
}

// walkOf is what the longest walk over the match table costs: an entry is 1, and each of its sets 2.
func walkOf(rules []bpf.Rule) int {
	n := len(rules)
	for i := range rules {
		for j := range rules[i].In {
			if rules[i].In[j] != 0 {
				n += 2
			}
			if rules[i].NotIn[j] != 0 {
				n += 2
			}
		}
	}
	return n
}

func newTable(p *match.Program) *Table {
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

// withNone returns the classes by id, with those that have no sets: the same slice if it is so already.
func withNone(some []classes.Class) []classes.Class {
	if len(some) >= 2 && some[0].ID == classes.None4 && some[1].ID == classes.None6 && ascending(some) {
		return some
	}
	all := append(slices.Clone(some), classes.Class{ID: classes.None4, Family: 4}, classes.Class{ID: classes.None6, Family: 6})
	slices.SortFunc(all, func(a, b classes.Class) int { return cmp.Compare(a.ID, b.ID) })
	return slices.CompactFunc(all, func(a, b classes.Class) bool { return a.ID == b.ID })
}

func ascending(list []classes.Class) bool {
	for i := 1; i < len(list); i++ {
		if list[i].ID <= list[i-1].ID {
			return false
		}
	}
	return true
}

// builder compiles one table.
type builder struct {
	lim   Limits
	t     *Table
	rules []bpf.Rule
	kinds // of classes

	columns columns
	sports  sportClasses

	outcomes  map[bpf.Outcome]uint16
	plain     []uint16 // by entry: its outcome without passes and logs; 0: not known yet
	blocks    map[bpf.CellBlock]uint16
	lines     map[string]uint16 // blocks of a row -> row
	rowBlocks []uint16          // all rows' blocks
	full      bool              // a limit was met
}

// buildTable returns the table that takes the fewest steps, or nil if there is none within the limits.
func buildTable(p *match.Program, classes []classes.Class, lim Limits) *Table {
	b := &builder{lim: lim, rules: p.Rules, t: newTable(p)}
	if !b.columns.find(b.rules) || !b.sports.find(b.rules) {
		return nil
	}
	if len(b.columns.list)*len(b.sports.list) > maxIDs || !b.number(classes) {
		return nil
	}
	perRow := b.columns.work(len(b.rules)) * len(b.sports.list)
	steps := len(b.of) * perRow
	if steps <= denseSteps && !lim.Wide {
		if b.fill(classes, nil) {
			return b.t
		}
	}
	wide := b.planWide(classes, perRow)
	if !lim.Wide && steps > denseSteps && steps <= min(lim.Steps, wide.steps) {
		if b.fill(classes, nil) {
			return b.t
		}
	}
	if wide.steps <= lim.Steps && wide.bytes <= lim.Bytes && b.fill(classes, wide) {
		return b.t
	}
	return nil
}

// kinds are classes that one table cannot tell apart.
type kinds struct {
	of  []int   // a kind -> the index of a class of it
	all []int32 // the index of a class -> its kind
}

// number finds the kinds, and makes the array of rows. False: that would be too large.
func (b *builder) number(classes []classes.Class) bool {
	capacity := rowsFor(max(classes[len(classes)-1].ID, b.lim.Room))
	if capacity*binary.Size(bpf.CellBlock{}) > b.lim.Bytes {
		return false
	}
	b.t.Rows = make([]bpf.CellBlock, capacity)
	b.t.kinds = map[string]int32{} // as many as the policy tells apart, not as there are classes
	b.all = make([]int32, len(classes))
	var key []byte
	last, lastKind := []byte(nil), int32(0)
	for i, c := range classes {
		key = b.t.appendKind(key[:0], c)
		if !bytes.Equal(key, last) { // most classes of others are of one kind for a policy, and follow each other
			kind, ok := b.t.kinds[string(key)]
			if !ok {
				kind = int32(len(b.of))
				b.t.kinds[string(key)] = kind
				b.of = append(b.of, i)
			}
			last, lastKind = append(last[:0], key...), kind
		}
		b.all[i] = lastKind
	}
	return true
}

// rowsFor is how many values the array of rows has if there are classes up to most: with a quarter or more to spare.
func rowsFor(most uint32) int {
	needed := uint(most)/uint(cellsPerBlock) + 1
	return 1 << bits.Len((needed*4+2)/3-1)
}

// fill makes the table, a wide one by a plan or, if that is nil, a dense one. False: a limit was met.
func (b *builder) fill(classes []classes.Class, wide *widePlan) bool {
	n, t := len(b.rules), b.t
	sports := len(b.sports.list)
	t.used, t.holds = newBitmap(n), newBitmap(n)
	t.Slot = bpf.Slot{
		Rules: uint32(n), Columns: uint32(len(b.columns.list) * sports), Sports: uint32(sports), Blocks: b.blocksPerRow(),
	}
	if sports > 1 {
		t.Slot.Flags |= bpf.SlotSourcePorts
	}
	b.full, b.rowBlocks, t.Cells, t.Outcomes = false, nil, nil, nil
	b.plain = make([]uint16, n)
	b.outcomes, b.blocks, b.lines = make(map[bpf.Outcome]uint16, n), map[bpf.CellBlock]uint16{}, map[string]uint16{}
	b.outcome(match.NoOutcome())
	b.row(make([]uint16, int(t.Slot.Blocks)*cellsPerBlock))
	if wide != nil {
		b.wideRows(classes, wide)
	} else {
		b.denseRows(classes)
	}
	if b.full {
		return false
	}
	for i, c := range classes {
		t.SetRow(c.ID, t.rowOfKind[b.all[i]])
	}
	b.pages()
	t.allows = make([]uint32, len(b.blocks))
	for i := range t.allows {
		for j, o := range t.Cells[i].Cell {
			if t.Outcomes[o].Action == bpf.RuleAllow {
				t.allows[i] |= 1 << j
			}
		}
	}
	return t.Bytes() <= b.lim.Bytes
}

func (b *builder) blocksPerRow() uint32 {
	return uint32((len(b.columns.list)*len(b.sports.list) + cellsPerBlock - 1) / cellsPerBlock)
}

// denseRows gives every kind its row, all cells of which are computed.
func (b *builder) denseRows(classes []classes.Class) {
	t := b.t
	t.rowOfKind = make([]uint16, len(b.of))
	entries, cells := newAddressIndex(b.rules, t.refers), newCellFiller(b)
	for kind, i := range b.of {
		holds := entries.holding(classes[i])
		t.holds.add(holds)
		if t.rowOfKind[kind] = b.row(cells.fill(holds)); b.full {
			return
		}
	}
	t.Slot.Rows = uint32(len(b.lines))
	t.RowBlk = pack(b.rowBlocks)
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
