package classes_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/margay-project/margay/pkg/compile/classes"
)

// adopted draws classes and entries that are found in a kernel, on several pages of a List, some entries of unknown classes.
func adopted(t *rapid.T) (known []classes.Class, addrs []classes.AddrChange) {
	ids := []uint32{2, 3, 62, 63, 64, 65, 127, 128, 200, 1000}
	for _, id := range ids {
		if rapid.Bool().Draw(t, fmt.Sprint("class ", id)) {
			known = append(known, classes.Class{ID: id, Family: 4, Sets: rapid.SampledFrom([][]uint32{nil, {1}, {2}, {1, 2}, {3, 5}, {1, 4, 5}}).Draw(t, "sets")})
		}
	}
	prefixes := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) netip.Prefix { return nearby(t) }), 0, 20, rapid.ID[netip.Prefix]).Draw(t, "entries")
	for _, p := range prefixes {
		addrs = append(addrs, classes.AddrChange{Prefix: p, Class: rapid.SampledFrom(append(ids, classes.None4, 77, 3000)).Draw(t, "class")})
	}
	return known, addrs
}

func nearby(t *rapid.T) netip.Prefix {
	addr := netip.AddrFrom4([4]byte{10, 0, 0, byte(rapid.IntRange(0, 30).Draw(t, "address"))})
	return netip.PrefixFrom(addr, rapid.SampledFrom([]int{24, 28, 30, 31, 32, 32, 32}).Draw(t, "bits")).Masked()
}

// operate does one of what restarts and plans do.
func operate(t *rapid.T, c *classes.Classes) {
	set := uint32(rapid.IntRange(1, 5).Draw(t, "set"))
	switch rapid.SampledFrom([]string{"add", "add", "remove", "show", "hide", "empty", "diff", "diff", "move", "drop", "reuse", "hold", "sweep"}).Draw(t, "operation") {
	case "add":
		c.Add(nearby(t), set)
	case "remove":
		c.Remove(nearby(t), set)
	case "show":
		c.Show(set)
	case "hide":
		c.Hide(set)
	case "empty":
		c.Empty(set)
	case "diff":
		c.Diff()
	case "move":
		c.MoveUnknown()
	case "drop":
		c.Drop()
	case "reuse":
		c.Reuse()
	case "hold":
		held := map[uint32]bool{}
		for _, id := range rapid.SliceOf(rapid.Uint32Range(0, 70)).Draw(t, "held") {
			held[id] = true
		}
		c.Hold(held)
	case "sweep":
		c.Sweep(rapid.IntRange(0, 100).Draw(t, "lists"))
	}
}

// After a restart, too, All has what looking up each class gives, also of classes whose sets come to be known and of those whose sets do not.
func TestAllClassesAreListedAfterARestart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := classes.New()
		c.Adopt(adopted(t))
		former := classes.List{}
		for range rapid.IntRange(1, 40).Draw(t, "operations") {
			if operate(t, c); rapid.Bool().Draw(t, "list") {
				now := c.All()
				checkList(t, now, allOf(c))
				left := slices.DeleteFunc(allOf(c), func(class classes.Class) bool { return slices.Contains(c.Foreseen(), class.ID) })
				checkList(t, now.But(c.Foreseen()), left)
				checkSince(t, now, former)
				former = now
			}
		}
	})
}

func checkList(t *rapid.T, l classes.List, want []classes.Class) {
	if d := cmp.Diff(want, slices.Collect(l.All())); d != "" {
		t.Fatal(d)
	}
	if l.Len() != len(want) || l.Last() != want[len(want)-1].ID {
		t.Fatalf("%d classes to %d, want %d to %d", l.Len(), l.Last(), len(want), want[len(want)-1].ID)
	}
}

// An agent that starts beside thousands of classes whose sets it does not know lists the others for each table.
func TestAListWithoutManyClassesCostsNoMoreThanAList(t *testing.T) {
	const n = 10_000
	var known []classes.Class
	var ids []uint32
	for id := uint32(2); id < n; id++ {
		known, ids = append(known, classes.Class{ID: id, Family: 4}), append(ids, id)
	}
	all := classes.ListOf(known)
	if left := all.But(ids); left.Len() != 2 || left.Last() != classes.None6 {
		t.Errorf("%d classes to %d are left, want 2", left.Len(), left.Last())
	}
	const most = 3 * n / 64 // a page is copied once
	if got := testing.AllocsPerRun(3, func() { all.But(ids) }); got > most {
		t.Errorf("%.0f allocations, want %d at most", got, most)
	}
}
