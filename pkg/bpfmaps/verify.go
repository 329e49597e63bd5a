package bpfmaps

import (
	"errors"
	"hash/maphash"
	"slices"
	"unsafe"

	"github.com/margay-project/margay/bpf"
)

// Checksums of the published content show whether another process has changed a slot, without keeping a copy of it.

// seed makes the sums of this process, rowSeed those of rows.
var (
	seed    = maphash.MakeSeed()
	rowSeed = maphash.Comparable(seed, "rows")
)

// checksum is what a slot should hold: its shape, and a checksum of each part.
type checksum struct {
	known bool // false: an earlier agent published it
	shape bpf.Slot
	parts [parts]uint64
}

// sumOf returns the checksum of a content, as published or as read back, whose rows have the sum rows. Of each array it sums the
// first n entries, without the headroom. Rows are summed cell by cell, so that a row can be added to the sum.
func sumOf(c *SlotContent, n [parts]uint32, rows uint64) checksum {
	s := checksum{known: true, shape: c.Shape}
	s.parts[partRules] = hashOf(c.Rules, n[partRules])
	s.parts[partL4] = hashOf(c.L4, n[partL4])
	s.parts[partRowBlk] = hashOf(c.RowBlk, n[partRowBlk])
	s.parts[partCells] = hashOf(c.Cells, n[partCells])
	s.parts[partOutcomes] = hashOf(c.Outcomes, n[partOutcomes])
	s.parts[partRows] = rows
	return s
}

func rowsSum(rows []bpf.CellBlock) (sum uint64) {
	for i := range rows {
		sum += valueSum(uint32(i), &rows[i])
	}
	return sum
}

// valueSum is the sum of the rows in one value of the array.
func valueSum(index uint32, value *bpf.CellBlock) (sum uint64) {
	for i, row := range value.Cell {
		sum += rowSum(index*classesPerValue+uint32(i), row)
	}
	return sum
}

// setSum records the content that a slot has from now on.
func (at *place) setSum(c *SlotContent) {
	at.sizes = c.sizes()
	at.sum = sumOf(c, at.sizes, 0)
	at.setRows(c.Rows)
}

// setRows records the rows that a slot has from now on.
func (at *place) setRows(rows []bpf.CellBlock) {
	at.rowSums, at.sum.parts[partRows] = make([]uint64, len(rows)), 0
	for i := range rows {
		at.setRowSum(uint32(i), valueSum(uint32(i), &rows[i]))
	}
}

// setRowSum records the sum that one value of the rows has from now on. To record it twice changes nothing.
func (at *place) setRowSum(index uint32, sum uint64) {
	if missing := int(index) + 1 - len(at.rowSums); missing > 0 {
		at.rowSums = append(at.rowSums, make([]uint64, missing)...)
	}
	at.sum.parts[partRows] += sum - at.rowSums[index]
	at.rowSums[index] = sum
}

// hashOf hashes the first n values; fewer are another value.
func hashOf[V any](values []V, n uint32) uint64 {
	if uint32(len(values)) < n || n == 0 {
		return uint64(len(values)) - uint64(n)
	}
	return maphash.Bytes(seed, unsafe.Slice((*byte)(unsafe.Pointer(&values[0])), uintptr(n)*unsafe.Sizeof(values[0])))
}

// rowSum is what a class's row adds to the sum; nothing if it has none. A table has a row for every class, tens of thousands, so this is
// the mixing of splitmix64, which costs a tenth of a hash.
func rowSum(class uint32, row uint16) uint64 {
	if row == 0 {
		return 0
	}
	x := rowSeed + (uint64(class)<<16|uint64(row))*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// recordSum accepts the content of a slot that an earlier agent published as correct. A slot that cannot be read is not
// known. Only rows of some of the classes may be missing, see Short.
func (s *Slots) recordSum(m *Maps, slot uint32, classes []uint32) {
	if c, err := m.ReadSlot(slot); err == nil {
		s.pool.places[slot].setSum(&c)
		s.pool.places[slot].short = len(c.Rows) > 0 && slices.ContainsFunc(classes, func(class uint32) bool {
			index := int(class / classesPerValue)
			return index >= len(c.Rows) || c.Rows[index].Cell[class%classesPerValue] == 0
		})
	}
}

// Short reports whether a slot that an earlier agent has left in use has no row for some of the classes that OpenSlots was called with. There was
// no room for them, and their addresses are denied.
func (s *Slots) Short(slot uint32) bool {
	return int(slot) < len(s.pool.places) && s.pool.isLive(slot) && s.pool.places[slot].short
}

// Altered reads slots, those of some that are live, and returns those in which somebody else has changed
// something: publish their tables again. Slots that cannot be read, because an array is gone, are among them. Their arrays are
// not used again. It reads one slot, and more until it has read so many bytes; left are those of some that it has not come to.
func (s *Slots) Altered(m *Maps, some []uint32, most uint64) (altered, left []uint32, err error) {
	var errs []error
	for i, slot := range some {
		if most == 0 {
			return altered, some[i:], errors.Join(errs...)
		}
		if int(slot) >= len(s.pool.places) || !s.pool.isLive(slot) || !s.pool.places[slot].sum.known {
			continue
		}
		most -= min(most, s.arrays.bytes(s.pool.places[slot].capacity))
		want := s.pool.places[slot].sum
		got, err := m.ReadSlot(slot)
		if err != nil && !errors.Is(err, errUnpinned) {
			errs = append(errs, err)
		}
		if err != nil || sumOf(&got, s.pool.places[slot].sizes, rowsSum(got.Rows)) != want {
			altered = append(altered, slot)
			for p := range parts {
				s.pool.places[slot].foreign[p] = true
			}
		}
	}
	return altered, nil, errors.Join(errs...)
}

// Sum is what a slot should hold. Comparable.
type Sum struct {
	sum   checksum
	sizes [parts]uint32
}

// Sum is that of a slot in use. Known is false for a slot whose content is not known.
func (s *Slots) Sum(slot uint32) (sum Sum, known bool) {
	if int(slot) >= len(s.pool.places) || !s.pool.isLive(slot) {
		return Sum{}, false
	}
	at := &s.pool.places[slot]
	return Sum{at.sum, at.sizes}, at.sum.known
}

// Altered names the maps whose part of a content that was read back is not what it should be.
func (s Sum) Altered(c *SlotContent) (names []string) {
	got := sumOf(c, s.sizes, rowsSum(c.Rows))
	shape := got.shape
	if shape != s.sum.shape {
		names = append(names, bpf.MargayMapSlots)
	}
	for p := range parts {
		if got.parts[p] != s.sum.parts[p] {
			names = append(names, partNames[p])
		}
	}
	return names
}
