package table

import "github.com/margay-project/margay/pkg/compile/classes"

// rowMaker gives the kinds of classes their rows, in one way or the other.
type rowMaker interface {
	// known makes those of all kinds that the builder has numbered.
	known()
	// late makes that of another kind.
	late(c classes.Class) uint16
	// finish lays out the rows that were made.
	finish()
}

// lateRows gives classes that have come to be known since the builder has numbered the others their rows. False: a limit was
// met.
func (b *builder) lateRows(rows rowMaker) bool {
	t := b.t
	for i := 0; b.late != nil && i < len(*b.late); i++ {
		c := (*b.late)[i]
		row, ok := t.Row(c)
		if !ok {
			row = rows.late(c)
			t.kinds[string(t.appendKind(nil, &c))] = int32(len(t.rowOfKind))
			t.rowOfKind = append(t.rowOfKind, row)
		}
		if b.stopped || b.full {
			return false
		}
		t.Enlarge(c.ID)
		t.SetRow(c.ID, row)
	}
	return true
}

// denseRows are rows with all cells computed.
type denseRows struct {
	b       *builder
	entries *addressIndex
	cells   *cellFiller
}

func newDenseRows(b *builder) *denseRows {
	return &denseRows{b: b, entries: newAddressIndex(b), cells: newCellFiller(b)}
}

func (d *denseRows) known() {
	for kind, c := range d.b.of {
		if d.b.t.rowOfKind[kind] = d.late(c); d.b.full || d.b.stopped {
			return
		}
	}
}

func (d *denseRows) late(c classes.Class) uint16 {
	holds := d.entries.holding(c)
	d.b.t.seen.holds.add(holds)
	return d.b.row(d.cells.fill(holds))
}

func (d *denseRows) finish() {
	d.b.t.Slot.Rows = uint32(len(d.b.lines))
	d.b.t.RowBlk = pack(d.b.rowBlocks)
}
