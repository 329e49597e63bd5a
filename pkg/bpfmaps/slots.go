package bpfmaps

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
)

// ErrNoSlot says that all slots are in use.
var ErrNoSlot = errors.New("no free slot")

// Unpublished is the error of a Publish that could not write some of the contents, and nothing else went wrong.
type Unpublished struct{ Causes map[int]error } // by index in the contents

// Error names map and slot of each failure.
func (u *Unpublished) Error() string { return u.join().Error() }

// Unwrap returns the causes.
func (u *Unpublished) Unwrap() error { return u.join() }

func (u *Unpublished) join() error {
	var errs []error
	for _, i := range slices.Sorted(maps.Keys(u.Causes)) {
		errs = append(errs, u.Causes[i])
	}
	return errors.Join(errs...)
}

// ErrNoRoom says that a slot has no room for another class: its table has to be published again.
var ErrNoRoom = errors.New("no room for the class")

// Slots are the places compiled policies are published in. A slot is live from Publish to Release. Its content does not
// change meanwhile, except for rows of new classes. Endpoints refer to it by their policy words, which is a separate step.
//
// Not safe for concurrent use.
type Slots struct {
	slots  *ebpf.Map
	arrays *arrays
	pool   pool
	rows   map[uint32]*ebpf.Map // of live slots that had rows added
	// Space for what WriteRows writes.
	keys   []uint32
	values []bpf.CellBlock
}

// OpenSlots takes over the slots as an earlier agent left them. inUse are those that endpoints refer to; all others may
// be used again after a grace period. classes are those that addresses have, for Short.
func (m *Maps) OpenSlots(inUse, classes []uint32) (*Slots, error) {
	s := &Slots{slots: m.maps[bpf.MargayMapSlots], arrays: newArrays(m), rows: map[uint32]*ebpf.Map{}}
	s.pool.bytes = s.arrays.bytes
	s.pool.grace.wait = func() error { return rcuWait(s.arrays.outer[partRules], s.arrays.template[partRules]) }
	s.pool.places = make([]place, s.slots.MaxEntries())
	for entries, err := range readAll[uint32, bpf.Slot](s.slots) {
		if err != nil {
			return nil, fmt.Errorf("read map %s: %w", bpf.MargayMapSlots, err)
		}
		for i, slot := range entries.keys {
			s.pool.places[slot].shape = entries.values[i]
		}
	}
	for _, slot := range inUse {
		if slot != 0 && int(slot) < len(s.pool.places) {
			s.pool.places[slot].state = live
			s.recordSum(m, slot, classes)
		}
	}
	return s, s.adopt()
}

// adopt finds the arrays of all slots that have been used. A slot without a shape never was, or its agent died while filling
// it; arrays it may have are replaced when it is used, as are those out of reach.
func (s *Slots) adopt() error {
	o := &s.pool
	var former []uint32
	for slot := uint32(len(o.places)) - 1; slot > 0; slot-- {
		at := &o.places[slot]
		if at.shape == (bpf.Slot{}) && at.state == idle {
			o.fresh = append(o.fresh, slot)
			continue
		}
		o.touched = append(o.touched, slot)
		for p := range parts {
			inner, err := s.arrays.open(p, slot)
			if errors.Is(err, ebpf.ErrKeyNotExist) || errors.Is(err, errUnpinned) {
				continue
			}
			if err != nil {
				return err
			}
			at.capacity[p] = inner.MaxEntries()
			if err := errors.Join(s.arrays.ensurePinned(p, slot, inner), inner.Close()); err != nil {
				return err
			}
		}
		if at.state == idle {
			at.state = waiting
			former = append(former, slot)
		}
	}
	o.grace.add(former...)
	return nil
}

// Publish puts each content into a slot of its own and returns the slots, parallel to contents; no packet sees them
// before an endpoint refers to them. A content that cannot be written has slot 0, and the others are published all the same; the error is
// Unpublished if that is all that went wrong.
func (s *Slots) Publish(contents []SlotContent) ([]uint32, error) {
	chosen, errs := make([]uint32, len(contents)), make([]error, len(contents))
	var created []placement
	for i := range contents {
		chosen[i], errs[i] = s.pool.choose(contents[i].sizes())
		for p := range parts {
			if errs[i] != nil {
				break
			}
			errs[i] = s.write(p, i, chosen[i], &contents[i], &created)
		}
	}
	pinErr := s.put(created, errs)
	for i := range contents {
		if errs[i] == nil {
			errs[i] = writeShape(s.slots, chosen[i], contents[i].Shape)
		}
		if errs[i] == nil {
			at := &s.pool.places[chosen[i]]
			at.shape = contents[i].Shape
			at.setSum(&contents[i])
			continue
		}
		if chosen[i] != 0 {
			errs[i] = fmt.Errorf("publish policy in slot %d: %w", chosen[i], errs[i])
			s.pool.places[chosen[i]].state = idle
		}
		chosen[i] = 0
	}
	pinErr = errors.Join(pinErr, closeAll(created))
	failed := &Unpublished{Causes: map[int]error{}}
	for i, err := range errs {
		if err != nil {
			failed.Causes[i] = err
		}
	}
	switch {
	case len(failed.Causes) == 0:
		return chosen, pinErr
	case pinErr == nil:
		return chosen, failed
	}
	return chosen, errors.Join(failed, pinErr)
}

// write writes one part of a content into the slot's array, or into a new one if that is too small.
func (s *Slots) write(p part, content int, slot uint32, c *SlotContent, created *[]placement) error {
	need := c.sizes()[p]
	if need == 0 {
		return nil
	}
	fits := need <= s.pool.places[slot].capacity[p] && !s.pool.places[slot].foreign[p]
	var inner *ebpf.Map
	var err error
	if fits {
		inner, err = s.arrays.open(p, slot)
	} else {
		inner, err = s.arrays.create(p, headroom(need))
	}
	if err != nil {
		return err
	}
	err = c.fill(p, inner)
	if err == nil && fits && p == partRows { // a new array has none
		err = zeroRows(inner, need)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write the array of map %s: %w", partNames[p], err), inner.Close())
	}
	if fits {
		return inner.Close()
	}
	*created = append(*created, placement{content, p, slot, inner})
	return nil
}

// put puts arrays into the outer maps, notes their capacities and pins them.
func (s *Slots) put(list []placement, errs []error) (pinErr error) {
	done := s.arrays.put(list, errs)
	for _, l := range done {
		s.pool.places[l.slot].capacity[l.part], s.pool.places[l.slot].foreign[l.part] = l.inner.MaxEntries(), false
	}
	return s.arrays.pinAll(done, errs)
}

// Release gives a slot back that no endpoint refers to any more. It is used again once no packet can be in it.
func (s *Slots) Release(slot uint32) error {
	if err := s.pool.release(slot); err != nil {
		return err
	}
	rows := s.rows[slot]
	delete(s.rows, slot)
	if rows != nil {
		return rows.Close()
	}
	return nil
}

// Live lists the slots in use, ascending.
func (s *Slots) Live() []uint32 { return s.pool.live() }

// Usage says how many slots and bytes are in use.
func (s *Slots) Usage() SlotUsage { return s.pool.usage() }

// Close closes the maps; their content stays. It waits for grace periods that are running.
func (s *Slots) Close() error {
	s.pool.grace.close()
	s.arrays.calls.wait()
	var errs []error
	for _, rows := range s.rows {
		errs = append(errs, rows.Close())
	}
	s.rows = nil
	return errors.Join(errs...)
}
