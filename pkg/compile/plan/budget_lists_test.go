package plan

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/pkg/model"
)

// A list that is sorted in parts comes out as if it were sorted at once, whatever its length, and no part is large.
func TestAListSortedInPartsIsSorted(t *testing.T) {
	type item struct{ key, at int }
	compare := func(a, b item) int { return cmp.Compare(a.key, b.key) }
	rapid.Check(t, func(t *rapid.T) {
		n, keys := rapid.IntRange(0, 7*sortedAtOnce).Draw(t, "length"), rapid.IntRange(1, 5000).Draw(t, "keys")
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		var list []item
		for at := range n {
			list = append(list, item{random.IntN(keys), at})
		}
		want := slices.Clone(list)
		slices.SortStableFunc(want, compare)
		got, ok := sortInParts(list, compare, func(items int) bool {
			if items > 2*sortedAtOnce {
				t.Fatalf("%d items in one part", items)
			}
			return true
		})
		if !ok || !slices.Equal(got, want) {
			t.Fatalf("%d items are not in order (%v): %v", n, ok, got)
		}
	})
}

// The work ends at the next break after the caller has refused to go on.
func TestTheOverlapOfListsEndsWhenItIsNotWanted(t *testing.T) {
	lists := map[model.SetID][]netip.Prefix{}
	for i := range 3000 {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)
		lists[model.SetID(fmt.Sprint(i))] = []netip.Prefix{p}
	}
	for end := 1; ; end++ {
		breaks := 0
		most, combinations, ok := overlapOf(lists, func(int) bool { breaks++; return breaks < end })
		if ok && breaks < end {
			if most != 1 || combinations != len(lists) || end < 20 {
				t.Errorf("%d lists overlap in %d combinations, after %d breaks", most, combinations, breaks)
			}
			return
		}
		if ok || breaks != end {
			t.Fatalf("it goes on after break %d, to break %d", end, breaks)
		}
	}
}
