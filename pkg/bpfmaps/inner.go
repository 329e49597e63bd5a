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

// fill writes one part into an inner array, and leaves what that has beyond the content.
func (c *SlotContent) fill(p part, inner *ebpf.Map) error {
	switch p {
	case partRules:
		return fill(inner, c.Rules)
	case partL4:
		return fill(inner, c.L4)
	case partRows:
		return fill(inner, c.Rows)
	case partRowBlk:
		return fill(inner, c.RowBlk)
	case partCells:
		return fill(inner, c.Cells)
	default:
		return fill(inner, c.Outcomes)
	}
}

func fill[V any](inner *ebpf.Map, values []V) error { return fillFrom(inner, 0, values) }

// fillFrom writes values into an inner array from an index on.
func fillFrom[V any](inner *ebpf.Map, first uint32, values []V) error {
	if len(values) == 0 {
		return nil
	}
	keys := make([]uint32, len(values))
	for i := range keys {
		keys[i] = first + uint32(i)
	}
	_, err := inner.BatchUpdate(keys, values, nil)
	return err
}

// noRows are values of rows without any.
var noRows [256]bpf.CellBlock

// zeroRows removes the rows of an inner array from an index on: a class without a row is denied.
func zeroRows(inner *ebpf.Map, from uint32) error {
	for end := inner.MaxEntries(); from < end; from += uint32(len(noRows)) {
		if err := fillFrom(inner, from, noRows[:min(end-from, uint32(len(noRows)))]); err != nil {
			return err
		}
	}
	return nil
}
