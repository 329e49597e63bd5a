package classes

import (
	"fmt"
	"net/netip"
	"testing"
)

func TestUnusedListsOfSetsAreSweptAway(t *testing.T) {
	c := New()
	p := netip.MustParsePrefix("10.0.0.1/32")
	for i := range uint32(10000) {
		c.Show(i + 1)
		c.Add(p, i+1)
		c.Remove(p, i)
		c.Diff()
		c.Drop()
		c.Reuse()
	}
	if n := len(c.lists.index); n > 1100 {
		t.Errorf("%d lists for one address", n)
	}
	if got := fmt.Sprint(c.Members(p.Addr())); got != "[10000]" {
		t.Errorf("in sets %s", got)
	}
}

// A list that no prefix had when the unused ones were found stays if one has it by the time that they are dropped.
func TestAListThatIsAskedForAgainStays(t *testing.T) {
	l := newSetLists()
	var ids []listID
	for i := range uint32(6) {
		ids = append(ids, l.intern([]uint32{i + 1, 100}))
	}
	used := make([]bool, len(l.lists))
	used[ids[0]] = true
	l.mark(used)
	l.made = 0
	l.sweep(2) // 1 and 2
	if again := l.union(ids[0], l.intern([]uint32{4, 100})); l.intern([]uint32{5, 100}) != ids[4] || again == ids[3] {
		t.Fatalf("lists %v got other numbers", ids)
	}
	fresh := l.intern([]uint32{7})
	for range 2 {
		l.sweep(sweptAtOnce)
	}
	for id, want := range map[listID]string{ids[0]: "[1 100]", ids[3]: "[4 100]", ids[4]: "[5 100]", ids[5]: "[]", fresh: "[7]"} {
		if got := fmt.Sprint(l.sets(id)); got != want {
			t.Errorf("list %d is %s, want %s", id, got, want)
		}
	}
	if l.intern([]uint32{4, 100}) != ids[3] || len(l.index) != 6 {
		t.Errorf("%d lists are known: %v", len(l.index), l.index)
	}
}

// However many lists are unused at once, one sweep drops a bounded number of them, but more than are made between sweeps.
func TestUnusedListsAreDroppedInParts(t *testing.T) {
	const many, made = 5000, 1000
	l := newSetLists()
	for i := range uint32(many) {
		l.intern([]uint32{i + 1})
	}
	l.mark(make([]bool, len(l.lists)))
	l.sweep(sweptAtOnce) // as many as were made
	for i := range uint32(many) {
		l.intern([]uint32{i + 1, many + 1})
	}
	l.mark(make([]bool, len(l.lists)))
	l.made = 0
	for sweeps := 0; len(l.unused) > 0; sweeps++ {
		before := len(l.unused)
		for i := range uint32(made) {
			l.intern([]uint32{uint32(sweeps), i, many + 2})
		}
		l.sweep(sweptAtOnce)
		if n := before - len(l.unused); n > 2*made || n < made && len(l.unused) > 0 {
			t.Fatalf("sweep %d: %d lists were looked at, %d are left", sweeps, n, len(l.unused))
		}
	}
}

// The garbage collector looks at each object, and policies may be of very many lists of one or two sets.
func TestShortListsShareMemory(t *testing.T) {
	l := newSetLists()
	const many = 100_000
	n := uint32(0)
	perList := testing.AllocsPerRun(many, func() {
		n++
		l.intern([]uint32{n, n + 1})
	})
	if perList > 0.2 {
		t.Errorf("%.2f objects for a list of two sets, want 0.1", perList)
	}
	for i := range uint32(many) {
		if got := l.sets(l.intern([]uint32{i + 1, i + 2})); len(got) != 2 || cap(got) != 2 || got[0] != i+1 || got[1] != i+2 {
			t.Fatalf("list %d is %v", i, got)
		}
	}
	if len(l.index) != many+2 { // and the empty one
		t.Errorf("%d lists are known, want %d", len(l.index), many+2)
	}
}
