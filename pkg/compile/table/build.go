package table

import (
	"cmp"
	"encoding/binary"
	"maps"

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
	Open                   int    // in one plan; 0: plan.MaxOpen
	Part                   int    // in one plan that goes on with large policies; 0: half of Open
	Make                   int    // in one plan, in units; 0: plan.MaxMake
	Again                  int    // steps, of tables of one namespace that one plan makes again; 0: plan.MaxAgain
	Room                   uint32 // the table has room for classes up to this one, known or not
	// For tests: Interpret every policy, give every policy a Wide table.
	Interpret, Wide bool
}

// Limits on the cost of the policy of one direction of an endpoint.
const (
	// MaxTableBytes is the size of a decision table, without the match table.
	MaxTableBytes = 16 << 20
	// MaxSteps bounds the work of compiling: cells to fill and entries to look at. A step takes 1 to 10 ns; it is taken
	// in parts, see Making.
	MaxSteps = 1 << 25
	// MaxWalk is the longest walk of a policy that has no table, as walkOf counts: a verdict then takes less than 10 µs.
	MaxWalk = 256

	maxIDs = 0xffff // row, block and outcome numbers are u16
	// maxColumnBytes is for the lists of entries by column, while compiling.
	maxColumnBytes = 16 << 20
	// denseSteps are so few that no other kind of table is worth a thought.
	denseSteps = 1 << 20
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

// Build compiles a Program for the classes known now. If there are many
// rows and many columns the Table is a wide one. If no table is within the limits, the policy is interpreted: the Table has
// no arrays but the Program's. Nil: even that is past its limit. The cost of a table is estimated before it is made.
// Equal input gives an equal Table. The Table keeps p.
func Build(p *match.Program, known classes.List, lim Limits) *Table {
	return build(p, known, lim, endless(), nil)
}

// build makes breaks. Classes are added to late meanwhile; nil: none are.
func build(p *match.Program, known classes.List, lim Limits, breaks *breaks, late *[]classes.Class) *Table {
	lim = lim.withDefaults()
	if !lim.Interpret {
		b := &builder{breaks: breaks, lim: lim, rules: p.Rules, t: newTable(p), late: late}
		if b.table(known) {
			return b.t
		}
		if breaks.stopped || walkOf(p.Rules) > lim.Walk {
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
	t.refers = match.SetNumbers(p.Rules)
	return t
}

// builder compiles one table.
type builder struct {
	*breaks
	lim   Limits
	t     *Table
	rules []bpf.Rule
	kinds // of classes

	columns columns
	sports  sportClasses

	outcomes  map[bpf.Outcome]uint16 // those with passes or logs, and that of no entry
	plain     []uint16               // by entry: its outcome without passes and logs; 0: not known yet
	blocks    map[bpf.CellBlock]uint16
	lines     map[string]uint16 // blocks of a row -> row
	rowBlocks []uint16          // all rows' blocks
	full      bool              // a limit was met
	late      *[]classes.Class  // that have come to be known meanwhile; nil: none can
}

// table makes the table that takes the fewest steps. False: there is none within the limits.
func (b *builder) table(known classes.List) bool {
	lim := b.lim
	if !b.columns.find(b.rules, b.breaks) || !b.sports.find(b.rules, b.breaks) {
		return false
	}
	if len(b.columns.list)*len(b.sports.list) > maxIDs || !b.number(known) {
		return false
	}
	perRow := b.columns.work(len(b.rules)) * len(b.sports.list)
	steps := len(b.of) * perRow
	b.t.seen.steps = steps
	if steps <= denseSteps && !lim.Wide {
		if b.fill(known, nil) {
			return true
		}
	}
	wide := b.planWide(perRow)
	if !lim.Wide && steps > denseSteps && steps <= min(lim.Steps, wide.steps) {
		if b.fill(known, nil) {
			return true
		}
	}
	b.t.seen.steps = wide.steps
	return wide.steps <= lim.Steps && wide.bytes <= lim.Bytes && b.fill(known, wide)
}

// fill makes the table, a wide one by a plan or, if that is nil, a dense one. False: a limit was met.
func (b *builder) fill(known classes.List, wide *widePlan) bool {
	n, t := len(b.rules), b.t
	sports := len(b.sports.list)
	t.seen = seen{used: newBitmap(n), holds: newBitmap(n), steps: t.seen.steps}
	t.Slot = bpf.Slot{
		Rules: uint32(n), Columns: uint32(len(b.columns.list) * sports), Sports: uint32(sports), Blocks: b.blocksPerRow(),
	}
	if sports > 1 {
		t.Slot.Flags |= bpf.SlotSourcePorts
	}
	b.full, b.rowBlocks, t.Cells, t.Outcomes = false, nil, nil, nil
	b.plain = make([]uint16, n)
	b.outcomes, b.blocks, b.lines = map[bpf.Outcome]uint16{}, map[bpf.CellBlock]uint16{}, map[string]uint16{}
	b.outcome(match.NoOutcome())
	b.row(make([]uint16, int(t.Slot.Blocks)*cellsPerBlock))
	t.rowOfKind = make([]uint16, len(b.of))
	if len(t.kinds) > len(b.of) { // of classes that came while another kind of table was tried
		maps.DeleteFunc(t.kinds, func(_ string, kind int32) bool { return int(kind) >= len(b.of) })
	}
	rows := b.rowMaker(wide)
	rows.known()
	if b.stopped || b.full {
		return false
	}
	if !b.fillRows(known) {
		return false
	}
	if b.pages(); b.stopped || !b.lateRows(rows) {
		return false
	}
	rows.finish()
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

// rowMaker makes the rows of a wide table by a plan or, if that is nil, those of a dense one.
func (b *builder) rowMaker(wide *widePlan) rowMaker {
	if wide != nil {
		return newWideRows(b, wide)
	}
	return newDenseRows(b)
}

func (b *builder) blocksPerRow() uint32 {
	return uint32((len(b.columns.list)*len(b.sports.list) + cellsPerBlock - 1) / cellsPerBlock)
}

// row returns the row with these cells, which are as many as a row's blocks hold.
func (b *builder) row(cells []uint16) uint16 {
	start := len(b.rowBlocks)
	line := make([]byte, 0, len(cells)/cellsPerBlock*2)
	b.spend(len(cells) / cellsPerBlock)
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
	n = b.newOutcome(o)
	b.outcomes[o] = n
	return n
}

// newOutcome returns the number of an outcome that no other one equals; 0: there are too many.
func (b *builder) newOutcome(o bpf.Outcome) uint16 {
	if len(b.t.Outcomes) >= b.lim.Outcomes {
		b.full = true
		return 0
	}
	b.t.Outcomes = append(b.t.Outcomes, o)
	return uint16(len(b.t.Outcomes) - 1)
}

// pack lays values out as the kernel's array has them.
func pack(values []uint16) []bpf.CellBlock {
	out := make([]bpf.CellBlock, (len(values)+cellsPerBlock-1)/cellsPerBlock)
	for i, v := range values {
		out[i/cellsPerBlock].Cell[i%cellsPerBlock] = v
	}
	return out
}
