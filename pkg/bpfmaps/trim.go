package bpfmaps

import (
	"cmp"
	"errors"
	"slices"

	"github.com/margay-project/margay/bpf"
)

// Trim frees the arrays of idle slots, the largest first, until idle ones hold at most keep bytes. Slots that packets
// may still use are not touched; they can be trimmed later.
func (s *Slots) Trim(keep uint64) error {
	freed, err := s.pool.grace.passed()
	if s.pool.free(freed); err != nil {
		return err
	}
	slots, held := s.pool.idleBySize()
	var emptied []uint32
	for _, slot := range slots {
		if held <= keep {
			break
		}
		held -= s.pool.bytes(s.pool.places[slot].capacity)
		// Without a shape, a later agent takes the slot for one that was never used, and so leaves the array alone that
		// the emptied slots are about to share.
		if err := writeShape(s.slots, slot, bpf.Slot{}); err != nil {
			return err
		}
		s.pool.places[slot].shape = bpf.Slot{}
		emptied = append(emptied, slot)
	}
	return s.empty(emptied)
}

// idleBySize are the idle slots that have arrays, the largest first, and their size together.
func (o *pool) idleBySize() (slots []uint32, held uint64) {
	for slot := 1; slot < len(o.places); slot++ {
		if at := &o.places[slot]; at.state == idle && at.capacity != [parts]uint32{} {
			slots = append(slots, uint32(slot))
			held += o.bytes(at.capacity)
		}
	}
	slices.SortFunc(slots, func(a, b uint32) int {
		return cmp.Compare(o.bytes(o.places[b].capacity), o.bytes(o.places[a].capacity))
	})
	return slots, held
}

// empty replaces the arrays of slots by ones of a single entry that all of them share; entries of an array of maps
// cannot be removed in one call. Such a slot counts as having no arrays: the next content gets its own.
func (s *Slots) empty(slots []uint32) error {
	if len(slots) == 0 {
		return nil
	}
	var created []placement
	var errs []error
	for p := range parts {
		inner, err := s.arrays.create(p, 1)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		defer inner.Close()
		for i, slot := range slots {
			created = append(created, placement{i, p, slot, inner})
		}
	}
	failed := make([]error, len(slots))
	s.arrays.put(created, failed)
	for _, slot := range slots {
		s.pool.places[slot].capacity = [parts]uint32{}
		errs = append(errs, s.arrays.unpin(slot))
	}
	return errors.Join(append(errs, failed...)...)
}
