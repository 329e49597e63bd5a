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
	n.known[2] = true
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
