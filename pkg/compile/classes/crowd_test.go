package classes_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/compile/classes"
)

// textsOf are the families and sets of classes, in order.
func textsOf(all []classes.Class) (texts []string) {
	for _, c := range all {
		texts = append(texts, fmt.Sprint(c.Family, c.Sets))
	}
	slices.Sort(texts)
	return texts
}

// Before each round of writes, the classes that there will be are known. No class keeps a number that there is no room for, while lower ones
// are free.
func TestTheClassesAfterADiffAreKnownBefore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, m, kernel := classes.New(), newMembers(), policytest.Entries{}
		room := uint32(rapid.IntRange(2, 12).Draw(t, "room"))
		for range rapid.IntRange(1, 8).Draw(t, "rounds") {
			for range rapid.IntRange(1, 8).Draw(t, "edits") {
				m.edit(t, c)
			}
			c.Reuse()
			c.Lower(room)
			before, want := textsOf(slices.Collect(c.All().All())), textsOf(c.Crowd(1))
			for _, mv := range c.Diff() {
				kernel.Write(mv.AddrChange)
			}
			c.Drop()
			all := slices.Collect(c.All().All())
			if got := textsOf(all); len(all) > 1 && len(want) > 0 && !slices.Equal(got, want) {
				t.Fatalf("there are the classes %v, foreseen were %v", got, want)
			}
			if isNew := func(text string) bool { return !slices.Contains(before, text) }; len(want) == 0 && slices.ContainsFunc(textsOf(all), isNew) {
				t.Fatalf("there are the classes %v, before %v; none were foreseen", textsOf(all), before)
			}
			if few := c.Crowd(len(all)); few != nil {
				t.Fatalf("%d classes are no more than %d", len(few), len(all))
			}
			checkViews(t, c, m, kernel)
		}
		for range 2 * len(kernel) {
			c.Reuse()
			c.Lower(room)
			for _, mv := range c.Diff() {
				kernel.Write(mv.AddrChange)
			}
			c.Drop()
		}
		for p, entry := range kernel {
			if n := uint32(c.All().Len()); n <= room && entry.Class >= room {
				t.Fatalf("%s is in class %d; there are %d, and room for %d", p, entry.Class, n, room)
			}
		}
	})
}

// After a restart two classes may have the same sets. The entries of the higher one go to the lower one, which keeps its number.
func TestLowerLeavesTheTwinOfAClassAsItIs(t *testing.T) {
	c, prefixes := classes.New(), policytest.Prefixes("10.0.0.1/32", "10.0.0.2/32")
	const low, high, room = 5, 20, 10
	c.Adopt([]classes.Class{{ID: low, Sets: []uint32{1}}, {ID: high, Sets: []uint32{1}}},
		[]classes.AddrChange{{Prefix: prefixes[0], Class: low}, {Prefix: prefixes[1], Class: high}})
	c.Show(1)
	for _, p := range prefixes {
		c.Add(p, 1)
	}
	c.Lower(room)
	for _, m := range c.Diff() {
		if m.Prefix == prefixes[0] {
			t.Errorf("%s moves to class %d", m.Prefix, m.Class)
		}
	}
	if made := c.Created(); len(made) > 0 {
		t.Errorf("classes %v are made", made)
	}
	for _, p := range prefixes {
		if got := c.Lookup(p.Addr()).Class; got != low {
			t.Errorf("%s is in class %d, want %d", p, got, low)
		}
	}
}

// What an author's sets add to the classes is what is gone without them.
func TestSharesAreWhatIsGoneWithoutTheSets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		author := rapid.SliceOfN(rapid.IntRange(classes.Leaving, 2), 7, 7).Draw(t, "authors")
		of := func(set uint32) int { return author[set] }
		var all []classes.Class
		for range rapid.IntRange(0, 30).Draw(t, "classes") {
			sets := slices.Sorted(slices.Values(rapid.SliceOfDistinct(rapid.Uint32Range(0, 6), rapid.ID[uint32]).Draw(t, "sets")))
			all = append(all, classes.Class{Family: rapid.SampledFrom([]uint8{4, 6}).Draw(t, "family"), Sets: sets})
		}
		without := func(drop func(int) bool, family bool) map[string]bool {
			left := map[string]bool{}
			for _, c := range all {
				rest := slices.DeleteFunc(slices.Clone(c.Sets), func(s uint32) bool { return author[s] == classes.Leaving || drop(author[s]) })
				if text := fmt.Sprint(rest); family {
					left[fmt.Sprint(c.Family, text)] = true
				} else if len(rest) > 0 {
					left[text] = true
				}
			}
			return left
		}
		total, shares := classes.Shares(all, of, 3)
		if want := len(without(func(int) bool { return false }, true)); total != want {
			t.Fatalf("%d classes, want %d", total, want)
		}
		for by, got := range shares {
			want := classes.Share{
				Alone: len(without(func(other int) bool { return other != by }, false)),
				Added: total - len(without(func(other int) bool { return other == by }, true)),
			}
			if got != want {
				t.Fatalf("author %d: %+v, want %+v", by, got, want)
			}
		}
	})
}
