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

// allOf looks every class up by its id.
func allOf(c *classes.Classes) (all []classes.Class) {
	for id := range max(c.Highest(), classes.None6) + 1 {
		if class, ok := c.Class(id); ok {
			all = append(all, class)
		}
	}
	return all
}

// All is made of what it was before and what has changed since. It is always what looking up each class gives, and a List that was
// returned before stays as it was. Since has all classes that were not in a former one.
func TestAllClassesAreListedAfterFewAndManyChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := classes.New()
		const sets = 60
		for s := range uint32(sets) {
			c.Show(s + 1)
		}
		var before classes.List
		var kept []classes.Class
		for range rapid.IntRange(1, 30).Draw(t, "rounds") {
			for range rapid.SampledFrom([]int{0, 1, 2, 5, 40}).Draw(t, "changes") {
				p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(rapid.IntRange(0, 50).Draw(t, "address"))}), 32)
				set := uint32(rapid.IntRange(1, sets).Draw(t, "set"))
				if rapid.Bool().Draw(t, "leaves") {
					c.Remove(p, set)
				} else {
					c.Add(p, set)
				}
			}
			c.Diff()
			if rapid.Bool().Draw(t, "drop") {
				c.Drop()
				c.Reuse()
			}
			if rapid.Bool().Draw(t, "list") {
				now := c.All()
				if d := cmp.Diff(kept, slices.Collect(before.All())); d != "" {
					t.Fatal("the list before has changed:", d)
				}
				checkSince(t, now, before)
				before, kept = now, slices.Collect(now.All())
				checkList(t, now, allOf(c))
			}
			if d := cmp.Diff(kept, slices.Collect(before.All())); d != "" {
				t.Fatal("a list that was returned has changed:", d)
			}
		}
	})
}

func checkSince(t *rapid.T, now, former classes.List) {
	known := map[uint32]classes.Class{}
	for c := range former.All() {
		known[c.ID] = c
	}
	since := slices.Collect(now.Since(former))
	for _, c := range since {
		known[c.ID] = c
	}
	for c := range now.All() {
		if d := cmp.Diff(c, known[c.ID]); d != "" {
			t.Fatalf("class %d has changed, and is not among the %d of Since: %s", c.ID, len(since), d)
		}
	}
	if n := len(slices.Collect(now.Since(now))); n > 0 {
		t.Fatalf("%d classes have changed since the same list", n)
	}
}

// A List has None4 and None6, and each class once, whatever it is made of.
func TestListOf(t *testing.T) {
	some := []classes.Class{{ID: 200, Family: 6}, {ID: 5, Family: 4, Sets: []uint32{1}}, {ID: classes.None4, Family: 4}, {ID: 6, Family: 4}}
	l := classes.ListOf(some)
	ids := func(l classes.List) (all []uint32) {
		for c := range l.All() {
			all = append(all, c.ID)
		}
		if l.Len() != len(all) {
			t.Errorf("Len is %d for %v", l.Len(), all)
		}
		return all
	}
	if got := ids(l); !slices.Equal(got, []uint32{0, 1, 5, 6, 200}) || l.Last() != 200 {
		t.Errorf("a list of %v to %d", got, l.Last())
	}
	if got := ids(l.But([]uint32{6, 7, 200})); !slices.Equal(got, []uint32{0, 1, 5}) {
		t.Errorf("without 6 and 200: %v", got)
	}
	if got := ids(l); len(got) != 5 {
		t.Errorf("the list itself has changed: %v", got)
	}
	if got := ids(classes.List{}); len(got) != 0 {
		t.Errorf("the zero list has %v", got)
	}
}

// A class keeps its number and its sets as long as the kernel has an entry of it that could not be removed. No other class gets the number.
func TestAHeldClassIsToldFromOthersUntilItIsReleased(t *testing.T) {
	c := classes.New()
	p, q := netip.MustParsePrefix("fd00::1/128"), netip.MustParsePrefix("fd00::2/128")
	for _, set := range []uint32{1, 2} {
		c.Show(set)
	}
	add := func(p netip.Prefix, set uint32) uint32 {
		c.Add(p, set)
		c.Diff()
		return c.Lookup(p.Addr()).Class
	}
	id := add(p, 1)
	c.Remove(p, 1)
	c.Diff()
	if gone := c.Drop(); !slices.Equal(gone, []uint32{id}) {
		t.Fatalf("classes %v are dropped, want %d", gone, id)
	}
	c.Hold(map[uint32]bool{id: true})
	for range 3 {
		c.Reuse()
		if !c.Differ(id, classes.None6, []uint32{1}) || c.Differ(id, classes.None6, []uint32{2}) || !c.Differ(id, classes.None4, nil) {
			t.Error("a held class does not differ from others by its sets and its family")
		}
	}
	if other := add(q, 2); other == id {
		t.Error("a held class has got other sets")
	}
	c.Hold(nil)
	c.Reuse()
	if c.Differ(id, classes.None4, []uint32{1}) {
		t.Error("the sets of a class that is held no more are not forgotten")
	}
	c.Remove(q, 2)
	c.Show(3)
	if again := add(q, 3); again != id {
		t.Errorf("the class has the number %d; %d is free", again, id)
	}
}

func TestAClassThatThereNeverWasIsUnlikeOthers(t *testing.T) {
	c := classes.New()
	if !c.Differ(1<<20, classes.None4, nil) || !c.Differ(classes.None6, 1<<20, nil) || c.Differ(1<<20, 1<<20, nil) {
		t.Error("a number that no class had counts as one of the others")
	}
}

// A class of the kernel's entries of which the sets were lost may have been in any set, so its flows are judged again when it goes.
func TestAClassWhoseSetsAreUnknownIsUnlikeOthers(t *testing.T) {
	c := classes.New()
	p := netip.MustParsePrefix("10.0.0.1/32")
	c.Adopt(nil, []classes.AddrChange{{Prefix: p, Class: 7}})
	if !c.Unknown(7) {
		t.Fatal("class 7 is not unknown")
	}
	if !c.Differ(7, classes.None4, nil) || !c.Differ(classes.None4, 7, nil) || c.Differ(7, 7, nil) {
		t.Error("a class whose sets are unknown counts as one of the others")
	}
}

// BenchmarkAllAfterFewChanges lists 24,000 classes after one of them has left.
func BenchmarkAllAfterFewChanges(b *testing.B) {
	c := classes.New()
	prefix := func(i int) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32)
	}
	for i := range 24_000 {
		c.Show(uint32(i + 1))
		c.Add(prefix(i), uint32(i+1))
	}
	c.Diff()
	c.All()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%2 == 0 {
			c.Remove(prefix(700), 701)
		} else {
			c.Add(prefix(700), 701)
		}
		c.Diff()
		c.Drop()
		c.Reuse()
		if n := c.All().Len(); n != 24_001+(i%2) {
			b.Fatal(fmt.Sprint(n, " classes"))
		}
	}
}
