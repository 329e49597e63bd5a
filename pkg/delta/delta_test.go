package delta

import (
	"maps"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// apply carries out all pending changes on kernel, except those that refuse says fail.
func apply(t *Tracker[int, int], kernel map[int]int, refuse func(int) bool) (writes int) {
	keys, values := t.PendingSets(math.MaxInt, nil, nil)
	for i, key := range keys {
		if writes++; refuse(key) {
			continue
		}
		kernel[key] = values[i]
		t.Written(key)
	}
	for _, key := range t.PendingDeletes(math.MaxInt) {
		if writes++; refuse(key) {
			continue
		}
		delete(kernel, key)
		t.Written(key)
	}
	return writes
}

func never(int) bool { return false }

func TestOnlyDifferencesArePending(t *testing.T) {
	tr := New[int, int]()
	tr.SetActual(map[int]int{1: 10, 2: 20, 3: 30})
	tr.Set(1, 10) // as it is
	tr.Set(2, 21) // changed
	tr.Set(4, 40) // new; 3 is not wanted
	keys, values := tr.PendingSets(math.MaxInt, nil, nil)
	got := map[int]int{}
	for i := range keys {
		got[keys[i]] = values[i]
	}
	if diff := cmp.Diff(map[int]int{2: 21, 4: 40}, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]int{3}, tr.PendingDeletes(math.MaxInt)); diff != "" {
		t.Error(diff)
	}
}

// A part of very many changes must not cost what all of them do.
func TestNoMoreIsListedThanAskedFor(t *testing.T) {
	tr := New[int, int]()
	tr.SetActual(map[int]int{-1: 1, -2: 2, -3: 3})
	for key := range 10 {
		tr.Set(key, key)
	}
	for most, want := range map[int][2]int{0: {0, 0}, 2: {2, 2}, 7: {7, 3}, 100: {10, 3}} {
		keys, values := tr.PendingSets(most, nil, nil)
		if gone := tr.PendingDeletes(most); len(keys) != want[0] || len(values) != want[0] || len(gone) != want[1] {
			t.Errorf("at most %d: %v %v and %v", most, keys, values, gone)
		}
	}
}

func TestIntentThatReturnsToWhatIsThereIsNoLongerPending(t *testing.T) {
	tr := New[int, int]()
	tr.Set(1, 10)
	apply(tr, map[int]int{}, never)
	tr.Set(1, 11)
	tr.Set(1, 10)
	tr.Set(2, 20)
	tr.Delete(2)
	if tr.Pending() != 0 {
		t.Errorf("%d changes pending, want none", tr.Pending())
	}
}

func TestRepairsNameWhatSomebodyElseChanged(t *testing.T) {
	tr := New[int, int]()
	tr.Set(1, 10)
	tr.Set(2, 20)
	tr.Set(3, 30)
	kernel := map[int]int{}
	apply(tr, kernel, never)
	got := tr.SetActual(map[int]int{2: 99, 3: 30, 4: 40})
	want := Repairs[int]{Missing: []int{1}, Changed: []int{2}, Foreign: []int{4}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	kernel = map[int]int{2: 99, 3: 30, 4: 40}
	apply(tr, kernel, never)
	if diff := cmp.Diff(map[int]int{1: 10, 2: 20, 3: 30}, kernel); diff != "" {
		t.Error(diff)
	}
}

// Whatever is wanted, refused, changed by others and read again: in the end the kernel has exactly what is wanted, and
// applying once more writes nothing.
func TestTrackerConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr, want, kernel := New[int, int](), map[int]int{}, map[int]int{}
		key, value := rapid.IntRange(0, 9), rapid.IntRange(0, 3)
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				k, v := key.Draw(t, "key"), value.Draw(t, "value")
				tr.Set(k, v)
				want[k] = v
			},
			"delete": func(t *rapid.T) {
				k := key.Draw(t, "key")
				tr.Delete(k)
				delete(want, k)
			},
			"adopt": func(*rapid.T) {
				tr.Adopt(maps.Clone(kernel))
				want = maps.Clone(kernel)
			},
			"apply in part": func(t *rapid.T) {
				bad := key.Draw(t, "refused")
				apply(tr, kernel, func(k int) bool { return k >= bad })
			},
			"somebody else": func(t *rapid.T) {
				kernel[key.Draw(t, "key")] = value.Draw(t, "value")
				tr.SetActual(maps.Clone(kernel))
			},
			"": func(t *rapid.T) {
				if diff := cmp.Diff(want, maps.Collect(tr.All())); diff != "" {
					t.Fatalf("desired: %s", diff)
				}
				if tr.Len() != len(want) {
					t.Fatalf("Len %d, want %d", tr.Len(), len(want))
				}
			},
		})
		apply(tr, kernel, never)
		if diff := cmp.Diff(want, kernel); diff != "" {
			t.Fatalf("kernel: %s", diff)
		}
		if n := apply(tr, kernel, never); n != 0 {
			t.Fatalf("applying twice wrote %d times", n)
		}
	})
}
