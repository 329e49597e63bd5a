package bpfmaps

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

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

// ErrNoRoom says that a slot has no room for another class: its table has to be published anew.
var ErrNoRoom = errors.New("no room for the class")

// Slots are the places compiled policies are published in. A slot is live from Publish to Release; what is in it does
// not change meanwhile, except for rows of new classes. Endpoints refer to it by their policy words, which is a separate step.
//
// Not safe for concurrent use.
type Slots struct {
	dir      string // of the maps' pins
	slots    *ebpf.Map
	outer    [parts]*ebpf.Map
	template [parts]*ebpf.MapSpec
	places   []place
	touched  []uint32 // slots that have been chosen ever; the others never had arrays
	fresh    []uint32 // the others; the last one is next
	grace    grace
	rows     map[uint32]*ebpf.Map // of live slots that had rows added
}

type place struct {
	state    state
	shape    bpf.Slot
	capacity [parts]uint32 // entries of the inner arrays; 0: none
	sizes    [parts]uint32 // of what was published
	sum      checksum
}

type state uint8

const (
	idle state = iota
	live
	waiting // released, but packets may still be in it
)

// OpenSlots takes over the slots as an earlier agent left them. inUse are those that endpoints refer to; all others may
// be used again after a grace period.
func (m *Maps) OpenSlots(inUse []uint32) (*Slots, error) {
	s := &Slots{dir: m.dir, slots: m.maps[bpf.MargayMapSlots], rows: map[uint32]*ebpf.Map{}}
	for p, name := range partNames {
		s.outer[p] = m.maps[name]
		s.template[p] = m.spec.Maps[name].InnerMap.Copy()
		s.template[p].Name = name
	}
	s.grace.wait = func() error { return rcuWait(s.outer[partRules], s.template[partRules]) }
	s.places = make([]place, s.slots.MaxEntries())
	for entries, err := range readAll[uint32, bpf.Slot](s.slots) {
		if err != nil {
			return nil, fmt.Errorf("read map %s: %w", bpf.MargayMapSlots, err)
		}
		for i, slot := range entries.keys {
			s.places[slot].shape = entries.values[i]
		}
	}
	for _, slot := range inUse {
		if slot != 0 && int(slot) < len(s.places) {
			s.places[slot].state = live
			s.recordSum(m, slot)
		}
	}
	return s, s.adopt()
}

// adopt finds the inner arrays of all slots that have been used. A slot without a shape never was, or its agent died
// while filling it; arrays it may have are replaced when it is used, as are those out of reach.
func (s *Slots) adopt() error {
	for slot := uint32(len(s.places)) - 1; slot > 0; slot-- {
		at := &s.places[slot]
		if at.shape == (bpf.Slot{}) && at.state == idle {
			s.fresh = append(s.fresh, slot)
			continue
		}
		s.touched = append(s.touched, slot)
		for p := range parts {
			inner, err := openInner(s.dir, s.outer[p], p, slot)
			if errors.Is(err, ebpf.ErrKeyNotExist) || errors.Is(err, errUnpinned) {
				continue
			}
			if err != nil {
				return err
			}
			at.capacity[p] = inner.MaxEntries()
			if err := errors.Join(s.ensurePinned(p, slot, inner), inner.Close()); err != nil {
				return err
			}
		}
		if at.state == idle {
			at.state = waiting
			s.grace.add(slot)
		}
	}
	return nil
}

// Publish puts each content into a slot of its own and returns the slots, parallel to contents; no packet sees them
// before an endpoint refers to them. A content that cannot be written has slot 0, and the others are published all the same; the error is
// Unpublished if that is all that went wrong.
func (s *Slots) Publish(contents []SlotContent) ([]uint32, error) {
	chosen := make([]uint32, len(contents))
	errs := make([]error, len(contents)+spareSlots)
	for i := range contents {
		chosen[i], errs[i] = s.choose(contents[i].sizes())
	}
	var created [parts][]placement
	for i := range contents {
		for p := range parts {
			if errs[i] != nil {
				break
			}
			errs[i] = s.write(p, i, chosen[i], &contents[i], &created[p])
		}
	}
	if last := lastCreated(created); last >= 0 {
		s.addSpares(len(contents), contents[last].sizes(), &created)
	}
	s.putAll(created, errs)
	pinErr := s.pinAll(created, errs)
	for i := range contents {
		if errs[i] == nil {
			errs[i] = writeShape(s.slots, chosen[i], contents[i].Shape)
		}
		if errs[i] == nil {
			at := &s.places[chosen[i]]
			at.shape, at.sizes = contents[i].Shape, contents[i].sizes()
			at.sum = sumOf(&contents[i], at.sizes)
			continue
		}
		if chosen[i] != 0 {
			errs[i] = fmt.Errorf("publish policy in slot %d: %w", chosen[i], errs[i])
			s.places[chosen[i]].state = idle
		}
		chosen[i] = 0
	}
	for p := range parts {
		pinErr = errors.Join(pinErr, closeAll(created[p]))
	}
	failed := &Unpublished{Causes: map[int]error{}}
	for i, err := range errs[:len(contents)] {
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
	fits := need <= s.places[slot].capacity[p]
	var inner *ebpf.Map
	var err error
	if fits {
		inner, err = openInner(s.dir, s.outer[p], p, slot)
	} else {
		inner, err = s.newInner(p, headroom(need))
	}
	if err != nil {
		return err
	}
	if err := c.fill(p, inner); err != nil {
		return errors.Join(fmt.Errorf("write the array of map %s: %w", partNames[p], err), inner.Close())
	}
	if fits {
		return inner.Close()
	}
	*created = append(*created, placement{content, slot, inner})
	return nil
}

// putAll puts new arrays into the six outer maps at once: each waits for RCU, and they may wait together.
func (s *Slots) putAll(created [parts][]placement, errs []error) {
	var failed [parts]map[int]error
	var all sync.WaitGroup
	for p := range parts {
		if len(created[p]) == 0 {
			continue
		}
		failed[p] = map[int]error{}
		all.Go(func() {
			s.put(p, created[p], func(content int, err error) { failed[p][content] = err })
		})
	}
	all.Wait()
	for p := range parts {
		for content, err := range failed[p] {
			errs[content] = errors.Join(errs[content], err)
		}
	}
}

// choose takes a free slot for a content of these sizes: the one with the least room to spare among those with enough
// of it. If there is none, it waits for released ones if there are some with enough room, and else takes a slot whose
// arrays have to be created; an unused one, unless many lie idle already.
func (s *Slots) choose(need [parts]uint32) (uint32, error) {
	freed, err := s.grace.passed()
	s.free(freed)
	best := s.bestFit(idle, need)
	if best == 0 && s.fitting(waiting, need) >= 2 {
		// Their grace period takes no longer than putting new arrays into the maps.
		freed, err = s.grace.awaitPassed()
		s.free(freed)
		best = s.bestFit(idle, need)
	}
	if best == 0 {
		best = s.anyIdle()
	}
	for best == 0 && s.grace.len() > 0 && err == nil {
		freed, err = s.grace.awaitPassed()
		s.free(freed)
		best = s.anyIdle()
	}
	if best == 0 {
		return 0, errors.Join(ErrNoSlot, err)
	}
	s.places[best].state = live
	return best, nil
}

func (s *Slots) free(slots []uint32) {
	for _, slot := range slots {
		s.places[slot].state = idle
	}
}

// bestFit is the slot in that state with enough room for need in all its arrays and the least of it, 0 if there is
// none. One that is far too large is none: it would keep memory from whoever needs it.
func (s *Slots) bestFit(in state, need [parts]uint32) uint32 {
	best, least := uint32(0), ^uint64(0)
	for _, slot := range s.touched {
		if at := &s.places[slot]; at.state == in && at.holds(need) {
			if bytes := s.bytes(at.capacity); bytes < least {
				best, least = slot, bytes
			}
		}
	}
	if least > 4*s.bytes(need)+64<<10 {
		return 0
	}
	return best
}

func (s *Slots) fitting(in state, need [parts]uint32) int {
	n := 0
	for _, slot := range s.touched {
		if at := &s.places[slot]; at.state == in && at.holds(need) {
			n++
		}
	}
	return n
}

func (at *place) holds(need [parts]uint32) bool {
	if at.capacity == [parts]uint32{} {
		return false
	}
	for p, n := range need {
		if n > at.capacity[p] {
			return false
		}
	}
	return true
}

// anyIdle is an idle slot: an empty one, or one with arrays if there are none, or if a quarter of all arrays lie idle.
func (s *Slots) anyIdle() uint32 {
	empty, filled, idleFilled, inUse := uint32(0), uint32(0), 0, 0
	for _, slot := range s.touched {
		switch at := &s.places[slot]; {
		case at.state != idle:
			inUse++
		case at.capacity == [parts]uint32{}:
			empty = slot
		default:
			filled = slot
			idleFilled++
		}
	}
	last := len(s.fresh) - 1
	switch {
	case filled != 0 && (empty == 0 && last < 0 || idleFilled > 8+inUse/4):
		return filled
	case empty == 0 && last >= 0:
		empty = s.fresh[last]
		s.fresh, s.touched = s.fresh[:last], append(s.touched, empty)
	}
	return empty
}

// bytes is the size of arrays of these capacities.
func (s *Slots) bytes(capacity [parts]uint32) uint64 {
	sum := uint64(0)
	for p, n := range capacity {
		sum += uint64(n) * uint64(s.template[p].ValueSize)
	}
	return sum
}

// Release gives a slot back that no endpoint refers to any more. It is used again once no packet can be in it.
func (s *Slots) Release(slot uint32) error {
	if slot == 0 || int(slot) >= len(s.places) || s.places[slot].state != live {
		return fmt.Errorf("release slot %d: not in use", slot)
	}
	s.places[slot].state = waiting
	s.grace.add(slot)
	rows := s.rows[slot]
	delete(s.rows, slot)
	if rows != nil {
		return rows.Close()
	}
	return nil
}

// Live lists the slots in use, ascending.
func (s *Slots) Live() []uint32 {
	var list []uint32
	for slot := range s.places {
		if s.places[slot].state == live {
			list = append(list, uint32(slot))
		}
	}
	return slices.Clip(list)
}

// Close lets go of the maps; what is in them stays. It waits for a grace period that is running.
func (s *Slots) Close() error {
	s.grace.close()
	var errs []error
	for _, rows := range s.rows {
		errs = append(errs, rows.Close())
	}
	s.rows = nil
	return errors.Join(errs...)
}
