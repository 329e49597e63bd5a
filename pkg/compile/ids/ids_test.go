package ids

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNumbersAreLowestFreeFirstAndNotReusedAtOnce(t *testing.T) {
	n := New[string](3)
	for i, k := range []string{"a", "b", "c", "d"} {
		num := n.Number(k)
		n.Hold(num)
		if want := uint32((i + 1) % 4); num != want {
			t.Errorf("%q got number %d, want %d", k, num, want)
		}
	}
	n.SetKnown(2)
	n.Drop(2)
	if d := cmp.Diff([]uint32{2}, n.Collect(10)); d != "" {
		t.Fatal(d)
	}
	if num := n.Number("e"); num != 0 {
		t.Errorf("number %d of what was just released was given away", num)
	}
	n.Reuse()
	if num := n.Number("e"); num != 2 {
		t.Errorf("e got number %d, want 2", num)
	}
	if num := n.Number("a"); num != 1 {
		t.Errorf("a has number %d now, want 1", num)
	}
}

// A damaged map in the kernel may have any number. It must not cost memory for all numbers below it.
func TestAHighNumberIsKeptLikeALowOne(t *testing.T) {
	n := New[string](1 << 31)
	for _, num := range []uint32{5, 1<<32 - 1} {
		n.Assign("of the kernel", num)
		n.Hold(num)
		n.SetKnown(num)
		n.Rename(num, "named")
		if n.Key(num) != "named" || !n.Known(num) || len(n.Held()) != 1 || n.Held()[num] != "named" || len(n.list) > 6 {
			t.Errorf("number %d: key %q, known %v, held %v, %d listed", num, n.Key(num), n.Known(num), n.Held(), len(n.list))
		}
		n.Drop(num)
		if d := cmp.Diff([]uint32{num}, n.Collect(10)); d != "" || n.Key(num) != "" || n.Known(num) || n.Len() != 0 {
			t.Errorf("number %d is not gone: %s", num, d)
		}
	}
}
