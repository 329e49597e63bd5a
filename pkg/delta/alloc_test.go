package delta

import (
	"math"
	"testing"
)

// Plans change some entries each, many times a second: they must not allocate the space for them each time.
func TestChangesUseTheSpaceOfEarlierOnes(t *testing.T) {
	tr := New[uint64, [8]uint64]()
	key := uint64(0)
	var keys []uint64
	var values [][8]uint64
	plan := func() {
		for range 100 {
			key++
			tr.Set(key, [8]uint64{key})
		}
		keys, values = tr.PendingSets(math.MaxInt, keys, values)
		for _, k := range keys {
			tr.Written(k)
		}
		for _, k := range keys {
			tr.Delete(k)
		}
		for _, k := range tr.PendingDeletes(math.MaxInt) {
			tr.Written(k)
		}
	}
	plan()
	if got := testing.AllocsPerRun(100, plan); got > 2 { // a slice, and now and then a map makes room
		t.Errorf("%v allocations for 100 entries written and removed, want 1", got)
	}
	if tr.Pending() != 0 || tr.Actual() != 0 {
		t.Errorf("%d pending, %d there", tr.Pending(), tr.Actual())
	}
}

// Very many changes at once must not cost memory for good.
func TestTheSpaceOfVeryManyChangesIsFreed(t *testing.T) {
	tr := New[int, int]()
	for key := range 2 * keptPending {
		tr.Set(key, key)
	}
	for key := range 2 * keptPending {
		tr.Written(key)
	}
	if tr.most != 0 {
		t.Errorf("the space of %d changes is kept", tr.most)
	}
}
