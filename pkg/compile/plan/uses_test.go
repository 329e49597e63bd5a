package plan

import (
	"maps"
	"slices"
	"testing"
)

// A damaged map in the kernel may have any number. It is kept like others, and costs no memory for all numbers below it.
func TestUsesOfHighNumbersAreKeptLikeOthers(t *testing.T) {
	var s setUses
	numbers := []uint32{3, 700, mostListed - 1, mostListed, 1<<31 - 1}
	for _, num := range numbers {
		if s.get(num) != nil {
			t.Errorf("set %d is there before it comes", num)
		}
		s.put(num, &setUse{refs: int(num)})
	}
	for num, u := range s.all() {
		if s.get(num) != u || u.refs != int(num) {
			t.Errorf("set %d has the use of set %d", num, u.refs)
		}
	}
	if got := slices.Collect(maps.Keys(maps.Collect(s.all()))); len(got) != len(numbers) || len(s.list) > mostListed {
		t.Errorf("%d sets, %d listed", len(got), len(s.list))
	}
	for _, num := range numbers {
		s.remove(num)
		if s.get(num) != nil {
			t.Errorf("set %d is there although it is gone", num)
		}
	}
	for num := range s.all() {
		t.Errorf("set %d is left", num)
	}
}
