package bpfmaps

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
)

// classesPerValue is the number of classes in one value of the rows array.
const classesPerValue = uint32(len(bpf.CellBlock{}.Cell))

// Row is the row of a class.
type Row struct {
	Class uint32
	Row   uint16
}

// WriteRows gives classes, which no address has yet, their rows in a live slot. rows are all rows that the slot is to have now: it reads
// nothing back, and writes each value with one of the classes once, all of them with one call. ErrNoRoom: the slot is too small for
// some classes, see EnlargeRows; the others have their rows. To write rows twice changes nothing.
func (s *Slots) WriteRows(slot uint32, classes []uint32, rows []bpf.CellBlock) error {
	if !s.pool.isLive(slot) {
		return fmt.Errorf("add rows of %d classes: slot %d is not in use", len(classes), slot)
	}
	at := &s.pool.places[slot]
	keys := s.keys[:0]
	var noRoom error
	for _, class := range classes {
		index := class / classesPerValue
		if index >= at.capacity[partRows] || int(index) >= len(rows) {
			noRoom = s.noRoom(slot, class)
			continue
		}
		keys = append(keys, index)
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	values := s.values[:0]
	for _, index := range keys {
		values = append(values, rows[index])
	}
	s.keys, s.values = keys, values
	if err := s.writeValues(slot, keys, values); err != nil {
		return err
	}
	for i, index := range keys {
		at.setRowSum(index, valueSum(index, &values[i]))
	}
	return noRoom
}

// writeValues writes values of a slot's rows. The kernel copies each value in 8-byte words, and a program reads one aligned cell of it:
// it sees the new row or none, and the other cells unchanged.
func (s *Slots) writeValues(slot uint32, keys []uint32, values []bpf.CellBlock) error {
	if len(keys) == 0 {
		return nil
	}
	inner, err := s.openRows(slot)
	if err != nil {
		return err
	}
	if len(keys) == 1 {
		err = inner.Update(&keys[0], &values[0], ebpf.UpdateExist)
	} else {
		_, err = inner.BatchUpdate(keys, values, nil)
	}
	if err != nil {
		return fmt.Errorf("write the array of map %s key %d, %d values from index %d on: %w", bpf.MargayMapRows, slot, len(keys), keys[0], err)
	}
	return nil
}

// openRows returns the array of a slot's rows, which stays open while the slot is live.
func (s *Slots) openRows(slot uint32) (*ebpf.Map, error) {
	if rows := s.rows[slot]; rows != nil {
		return rows, nil
	}
	rows, err := s.arrays.open(partRows, slot)
	if err != nil {
		return nil, err
	}
	s.rows[slot] = rows
	return rows, nil
}

func (s *Slots) noRoom(slot, class uint32) error {
	return fmt.Errorf("add row of class %d to slot %d, which has room for %d: %w", class, slot, s.Classes(slot), ErrNoRoom)
}

// PatchRows is WriteRows for a slot whose other rows are not known, such as one that an earlier agent has published: it reads each value
// before it writes it. Rows of neighbouring classes, when they are neighbours in the list, are written together.
func (s *Slots) PatchRows(slot uint32, list []Row) error {
	var noRoom error
	for len(list) > 0 {
		n := 1
		for n < len(list) && list[n].Class/classesPerValue == list[0].Class/classesPerValue {
			n++
		}
		err := s.patchValue(slot, list[:n])
		if errors.Is(err, ErrNoRoom) {
			noRoom = err
		} else if err != nil {
			return err
		}
		list = list[n:]
	}
	return noRoom
}

// patchValue writes rows that are in one value of the array.
func (s *Slots) patchValue(slot uint32, list []Row) error {
	class := list[0].Class
	if !s.pool.isLive(slot) {
		return fmt.Errorf("add row of class %d: slot %d is not in use", class, slot)
	}
	index := class / classesPerValue
	if index >= s.pool.places[slot].capacity[partRows] {
		return s.noRoom(slot, class)
	}
	rows, err := s.openRows(slot)
	if err != nil {
		return err
	}
	var value bpf.CellBlock
	if err := rows.Lookup(&index, &value); err != nil {
		return fmt.Errorf("read the array of map %s key %d, index %d: %w", bpf.MargayMapRows, slot, index, err)
	}
	sum := uint64(0)
	if at := &s.pool.places[slot]; int(index) < len(at.rowSums) {
		sum = at.rowSums[index]
	}
	for _, r := range list {
		cell := &value.Cell[r.Class%classesPerValue]
		sum += rowSum(r.Class, r.Row) - rowSum(r.Class, *cell)
		*cell = r.Row
	}
	if err := s.writeValues(slot, []uint32{index}, []bpf.CellBlock{value}); err != nil {
		return err
	}
	s.pool.places[slot].setRowSum(index, sum)
	return nil
}

// EnlargeRows gives live slots longer arrays of rows with the content of rows, parallel to slots. These are the present rows;
// rows of classes that no address has yet may be among them. Packets find their rows in the old array or in the new one; a
// packet that finds an address with a class from now on looks for its row in the new one. A slot that is not enlarged stays
// as it was; the error names it.
func (s *Slots) EnlargeRows(slots []uint32, rows [][]bpf.CellBlock) error {
	var created []placement
	errs := make([]error, len(slots))
	for i, slot := range slots {
		if !s.pool.isLive(slot) {
			errs[i] = errors.New("it is not in use")
			continue
		}
		inner, err := s.arrays.create(partRows, headroom(uint32(len(rows[i]))))
		if err == nil {
			if err = (&SlotContent{Rows: rows[i]}).fill(partRows, inner); err != nil {
				err = errors.Join(err, inner.Close())
			}
		}
		if errs[i] = err; err == nil {
			created = append(created, placement{i, partRows, slot, inner})
		}
	}
	pinErr := s.put(created, errs)
	for i, slot := range slots {
		if errs[i] != nil {
			errs[i] = fmt.Errorf("make room for classes in slot %d: %w", slot, errs[i])
			continue
		}
		s.pool.places[slot].setRows(rows[i])
		if old := s.rows[slot]; old != nil {
			delete(s.rows, slot)
			errs[i] = old.Close()
		}
	}
	return errors.Join(append(errs, pinErr, closeAll(created))...)
}

// Classes is the number of classes (0 to n-1) a slot has room for.
func (s *Slots) Classes(slot uint32) uint32 {
	if int(slot) >= len(s.pool.places) {
		return 0
	}
	return s.pool.places[slot].capacity[partRows] * classesPerValue
}

// ReadRules reads the ordered match table of a slot back.
func (m *Maps) ReadRules(slot uint32) ([]bpf.Rule, error) {
	shape, err := readShape(m.maps[bpf.MargayMapSlots], slot)
	if err != nil || shape.Rules == 0 {
		return nil, err
	}
	rules, err := readPart[bpf.Rule](m, partRules, slot)
	if err == nil && shape.Rules > uint32(len(rules)) {
		err = fmt.Errorf("slot %d should have %d rules, its array holds %d", slot, shape.Rules, len(rules))
	}
	if err != nil {
		return nil, err
	}
	return rules[:shape.Rules], nil
}

// ReadSlot reads everything in a slot back. Arrays come with their headroom, except for the rules.
func (m *Maps) ReadSlot(slot uint32) (SlotContent, error) {
	var c SlotContent
	var errs [parts]error
	var err error
	if c.Shape, err = readShape(m.maps[bpf.MargayMapSlots], slot); err != nil {
		return c, err
	}
	c.Rules, errs[partRules] = m.ReadRules(slot)
	if c.Shape.Flags&bpf.SlotInterpret == 0 && c.Shape.Rows > 0 {
		c.L4, errs[partL4] = readPart[bpf.L4Page](m, partL4, slot)
		c.Rows, errs[partRows] = readPart[bpf.CellBlock](m, partRows, slot)
		c.RowBlk, errs[partRowBlk] = readPart[bpf.CellBlock](m, partRowBlk, slot)
		c.Cells, errs[partCells] = readPart[bpf.CellBlock](m, partCells, slot)
		c.Outcomes, errs[partOutcomes] = readPart[bpf.Outcome](m, partOutcomes, slot)
	}
	return c, errors.Join(errs[:]...)
}

func readPart[V any](m *Maps, p part, slot uint32) ([]V, error) {
	inner, err := openInner(m.dir, m.maps[partNames[p]], p, slot)
	if err != nil {
		return nil, err
	}
	defer inner.Close()
	var values []V
	for entries, err := range readAll[uint32, V](inner) {
		if err != nil {
			return nil, fmt.Errorf("read the array of map %s key %d: %w", partNames[p], slot, err)
		}
		if len(entries.values) == int(inner.MaxEntries()) {
			return entries.values, nil // the usual case: all of it is read at once
		}
		values = append(slices.Grow(values, max(0, int(inner.MaxEntries())-len(values))), entries.values...)
	}
	return values, nil
}
