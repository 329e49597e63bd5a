package bpfmaps

import (
	"errors"
	"fmt"
	"slices"

	"github.com/margay-project/margay/bpf"
)

// pool records which slots are in use, and the size and checksum of the arrays in each.
type pool struct {
	places  []place
	touched []uint32 // slots that have been chosen ever; the others never had arrays
	fresh   []uint32 // the others; the last one is next
	grace   grace
	bytes   func(capacity [parts]uint32) uint64 // of arrays
}

type place struct {
	state    state
	shape    bpf.Slot
	capacity [parts]uint32 // entries of the inner arrays; 0: none
	sizes    [parts]uint32 // entries that were published
	sum      checksum
	rowSums  []uint64 // of each value of the rows, as in sum
	// foreign: somebody has altered the slot. Its arrays may be another slot's, or missing, so they are not used again.
	foreign [parts]bool
	short   bool // see Slots.Short
}

type state uint8

const (
	idle state = iota
	live
	waiting // released, but packets may still be in it
)

// choose takes a free slot for a content of these sizes: the one with the least room to spare among those with enough
// of it, or with enough for all but rows: classes that come to be more, a tenant's, make those of all slots too small, and the other five
// arrays are as good as new ones. If there is none, it takes one whose arrays have to be created: an unused one, unless many lie idle
// already, or are about to. It
// waits for packets to leave released slots if these are many, or if all others are in use.
func (o *pool) choose(need [parts]uint32) (uint32, error) {
	freed, err := o.grace.passed()
	o.free(freed)
	best := o.bestFit(need, need)
	if rest := need; best == 0 {
		rest[partRows] = 0
		best = o.bestFit(need, rest)
	}
	// After a start all idle slots wait. With unused ones in their place, each start would add to the arrays that lie idle for good.
	for best == 0 && err == nil && o.grace.len() > o.mostIdle() {
		freed, err = o.grace.awaitPassed()
		o.free(freed)
		best = o.bestFit(need, need)
	}
	if best == 0 {
		best = o.anyIdle()
	}
	for best == 0 && o.grace.len() > 0 && err == nil {
		freed, err = o.grace.awaitPassed()
		o.free(freed)
		best = o.anyIdle()
	}
	if best == 0 {
		return 0, errors.Join(ErrNoSlot, err)
	}
	o.places[best].state = live
	return best, nil
}

func (o *pool) free(slots []uint32) {
	for _, slot := range slots {
		o.places[slot].state = idle
	}
}

// bestFit is the idle slot with enough room for enough in all its arrays and the least of it, 0 if there is none. One that is
// far too large for need is none: it would keep memory from others.
func (o *pool) bestFit(need, enough [parts]uint32) uint32 {
	best, least := uint32(0), ^uint64(0)
	for _, slot := range o.touched {
		if at := &o.places[slot]; at.state == idle && at.holds(enough) {
			if bytes := o.bytes(at.capacity); bytes < least {
				best, least = slot, bytes
			}
		}
	}
	if least > 4*o.bytes(need)+64<<10 {
		return 0
	}
	return best
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

// mostIdle is how many slots with arrays may lie idle when another one gets arrays: a quarter of those in use, and a few.
func (o *pool) mostIdle() int {
	inUse := 0
	for _, slot := range o.touched {
		if o.places[slot].state == live {
			inUse++
		}
	}
	return 8 + inUse/4
}

// anyIdle is an idle slot: an empty one, or one with arrays if there are none, or if many lie idle.
func (o *pool) anyIdle() uint32 {
	empty, filled, idleFilled := uint32(0), uint32(0), 0
	for _, slot := range o.touched {
		switch at := &o.places[slot]; {
		case at.state != idle:
		case at.capacity == [parts]uint32{}:
			empty = slot
		default:
			filled = slot
			idleFilled++
		}
	}
	last := len(o.fresh) - 1
	switch {
	case filled != 0 && (empty == 0 && last < 0 || idleFilled > o.mostIdle()):
		return filled
	case empty == 0 && last >= 0:
		empty = o.fresh[last]
		o.fresh, o.touched = o.fresh[:last], append(o.touched, empty)
	}
	return empty
}

// release gives a live slot back, once no packet can be in it.
func (o *pool) release(slot uint32) error {
	if !o.isLive(slot) {
		return fmt.Errorf("release slot %d: not in use", slot)
	}
	o.places[slot].state = waiting
	o.grace.add(slot)
	return nil
}

func (o *pool) isLive(slot uint32) bool {
	return slot != 0 && int(slot) < len(o.places) && o.places[slot].state == live
}

// live lists the slots in use, ascending.
func (o *pool) live() []uint32 {
	var list []uint32
	for slot := range o.places {
		if o.places[slot].state == live {
			list = append(list, uint32(slot))
		}
	}
	return slices.Clip(list)
}

// SlotUsage says what the slots hold.
type SlotUsage struct {
	Live, Idle           int // slots with arrays; Idle includes those that wait for packets to leave
	LiveBytes, IdleBytes uint64
}

func (o *pool) usage() SlotUsage {
	var u SlotUsage
	for slot := 1; slot < len(o.places); slot++ {
		at := &o.places[slot]
		switch bytes := o.bytes(at.capacity); {
		case at.state == live:
			u.Live++
			u.LiveBytes += bytes
		case bytes > 0:
			u.Idle++
			u.IdleBytes += bytes
		}
	}
	return u
}
