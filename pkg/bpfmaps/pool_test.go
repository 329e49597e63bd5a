package bpfmaps

import "testing"

// newPool returns a pool of unused slots, numbered from 1, in which each entry takes a kilobyte.
func newPool(slots int) *pool {
	o := &pool{places: make([]place, slots+1), bytes: func(capacity [parts]uint32) (sum uint64) {
		for _, n := range capacity {
			sum += uint64(n) << 10
		}
		return sum
	}}
	o.grace.wait = func() error { return nil }
	for slot := slots; slot > 0; slot-- {
		o.fresh = append(o.fresh, uint32(slot))
	}
	return o
}

// use chooses a slot and returns how many arrays have to be made for it.
func (o *pool) use(t *testing.T, need [parts]uint32) (slot uint32, made int) {
	t.Helper()
	slot, err := o.choose(need)
	if err != nil {
		t.Fatal(err)
	}
	for p, n := range need {
		if at := &o.places[slot]; n > at.capacity[p] {
			at.capacity[p] = headroom(n)
			made++
		}
	}
	return slot, made
}

// Classes that come to be more, whosever they are, make the rows of all slots too small: the other arrays of a free slot are used again.
func TestASlotThatLacksOnlyRowsIsUsedAgain(t *testing.T) {
	o := newPool(100)
	need := [parts]uint32{10, 10, 10, 10, 10, 10}
	first, made := o.use(t, need)
	if made != int(parts) {
		t.Fatalf("%d arrays made for the first content, want %d", made, parts)
	}
	for range 20 {
		if err := o.release(first); err != nil {
			t.Fatal(err)
		}
		freed, err := o.grace.awaitPassed()
		if o.free(freed); err != nil {
			t.Fatal(err)
		}
		need[partRows] = headroom(need[partRows]) + 1
		slot, made := o.use(t, need)
		if slot != first || made != 1 {
			t.Fatalf("with %d rows %d arrays made for slot %d, want one for slot %d", need[partRows], made, slot, first)
		}
	}
	other := need
	other[partRules] = headroom(need[partRules]) + 1
	if slot, made := o.use(t, other); slot == first || made != int(parts) {
		t.Errorf("%d arrays made for slot %d, want all for another", made, slot)
	}
}
