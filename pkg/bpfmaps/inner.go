package bpfmaps

import (
	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
)

// SlotContent is one compiled policy as the maps hold it. Rows are 32 classes a value, RowBlk 32 blocks a value.
type SlotContent struct {
	Shape    bpf.Slot
	Rules    []bpf.Rule
	L4       []bpf.L4Page
	Rows     []bpf.CellBlock
	RowBlk   []bpf.CellBlock
	Cells    []bpf.CellBlock
	Outcomes []bpf.Outcome
}

// part is one of the six arrays of a slot.
type part int

const (
	partRules part = iota
	partL4
	partRows
	partRowBlk
	partCells
	partOutcomes
	parts
)

var partNames = [parts]string{
	bpf.MargayMapRules, bpf.MargayMapL4, bpf.MargayMapRows, bpf.MargayMapRowblk, bpf.MargayMapCells, bpf.MargayMapOutcomes,
}

func (c *SlotContent) sizes() [parts]uint32 {
	return [parts]uint32{
		uint32(len(c.Rules)), uint32(len(c.L4)), uint32(len(c.Rows)), uint32(len(c.RowBlk)), uint32(len(c.Cells)),
		uint32(len(c.Outcomes)),
	}
}

// fill writes one part into an inner array. Rows beyond the content are zeroed: a class without a row is denied.
func (c *SlotContent) fill(p part, inner *ebpf.Map) error {
	switch p {
	case partRules:
		return fill(inner, c.Rules)
	case partL4:
		return fill(inner, c.L4)
	case partRows:
		rows := make([]bpf.CellBlock, inner.MaxEntries())
		copy(rows, c.Rows)
		return fill(inner, rows)
	case partRowBlk:
		return fill(inner, c.RowBlk)
	case partCells:
		return fill(inner, c.Cells)
	default:
		return fill(inner, c.Outcomes)
	}
}

func fill[V any](inner *ebpf.Map, values []V) error {
	if len(values) == 0 {
		return nil
	}
	keys := make([]uint32, len(values))
	for i := range keys {
		keys[i] = uint32(i)
	}
	_, err := inner.BatchUpdate(keys, values, nil)
	return err
}
