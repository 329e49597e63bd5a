package table

import (
	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/model"
)

// Eval looks a packet up as the programs in the kernel do, by nothing but the table's arrays: class is that of the
// remote address. A missing entry denies, so an interpreted table denies everything; use Program.Interpret for those.
func (t *Table) Eval(class uint32, pkt model.Packet) bpf.Outcome {
	index, key := match.L4Key(pkt)
	col, ok := t.l4(index, key)
	if !ok {
		return match.NoOutcome()
	}
	if t.Slot.Flags&bpf.SlotSourcePorts != 0 {
		scol, ok := t.l4(bpf.L4Indexes+index, match.SourceKey(pkt, index))
		if !ok {
			return match.NoOutcome()
		}
		col = col*int(t.Slot.Sports) + scol
	}
	row, ok := cell(t.Rows, int(class))
	if !ok {
		return match.NoOutcome()
	}
	outcome, ok := t.outcomeAt(int(row), col)
	if !ok || int(outcome) >= len(t.Outcomes) {
		return match.NoOutcome()
	}
	return t.Outcomes[outcome]
}

// l4 follows the two levels of pages from a first-level page.
func (t *Table) l4(first int, key uint16) (col int, ok bool) {
	if first >= len(t.L4) {
		return 0, false
	}
	second := int(t.L4[first].Col[key>>8])
	if second >= len(t.L4) {
		return 0, false
	}
	return int(t.L4[second].Col[key&0xff]), true
}

// cell reads value i of an array of blocks.
func cell(blocks []bpf.CellBlock, i int) (uint16, bool) {
	if i/cellsPerBlock >= len(blocks) {
		return 0, false
	}
	return blocks[i/cellsPerBlock].Cell[i%cellsPerBlock], true
}
