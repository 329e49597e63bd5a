package chains

import (
	"fmt"
	"maps"
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/compile/classes"
)

// A slot's tree has only the classes whose row differs from the plain one. So a class that comes with prefixes of another policy, and
// has the plain row here, changes no chain of this slot. The number of rules of all slots does not depend on the number of classes,
// but on how many of them each policy distinguishes.

// A row becomes the plain one if it has more classes than the present plain row by these margins. They avoid changes: new addresses
// are mostly in no set of the policy, and a change of the plain row writes the slot again.
const (
	plainMargin   = 8  // when the slot is made
	rechoseMargin = 64 // later, and twice as many
)

// fill makes the tree.
func fill(s *Slot, known []classes.Class) error {
	count := map[uint16]int{}
	var leafs []leafOf
	var plain uint16
	for _, c := range known {
		if c.Family != s.w.o.Family {
			continue
		}
		if _, err := s.w.o.Marks.Class(c.ID); err != nil {
			return err
		}
		row := s.rows.of(c)
		if count[row]++; c.ID == classes.None4 || c.ID == classes.None6 {
			plain = row
		}
		s.known.set(uint16(c.ID+1), true)
		leafs = append(leafs, leafOf{uint16(c.ID + 1), row})
	}
	if _, err := s.info(0); err != nil {
		return err
	}
	if !s.denies(0) {
		return fmt.Errorf("make the chains of %s: row 0 of its table, for addresses without a class, does not deny", s.w.name)
	}
	for _, row := range slices.Sorted(maps.Keys(count)) {
		if _, err := s.info(row); err != nil {
			return err
		}
	}
	count[plain] += plainMargin
	for _, row := range slices.Sorted(maps.Keys(count)) {
		if count[row] > count[plain] {
			plain = row
		}
	}
	arrange(s, plain, leafs)
	return s.check(0)
}

// arrange makes the tree of all known classes, of which those with the row plain are left out.
func arrange(s *Slot, plain uint16, all []leafOf) {
	s.plain, s.size = plain, 0
	for _, i := range s.used {
		i.classes = 0
	}
	s.tree.end = end(s, s.used[plain])
	s.refer(plain)
	s.tree.leafs = slices.DeleteFunc(all, func(l leafOf) bool { return l.to == plain })
	if !s.denies(plain) {
		s.tree.leafs = append(s.tree.leafs, leafOf{0, 0})
	}
	slices.SortFunc(s.tree.leafs, func(a, b leafOf) int { return int(a.number) - int(b.number) })
	for _, l := range s.tree.leafs {
		s.refer(l.to)
	}
}

// end returns the last lines of chains of the tree, which lead to the plain row.
func end(s *Slot, i *rowInfo) []line {
	switch {
	case i.uniform:
		return s.w.send("", i.to, opener)
	case s.apart(i):
		return []line{{verdict: "-g " + s.w.rowName(s.plain, opener)}}
	}
	return append(s.w.short(s.leafOf(s.plain)), s.w.send("", i.to, opener)...)
}

// denies reports whether a row denies all packets.
func (s *Slot) denies(row uint16) bool {
	i := s.used[row]
	return i.uniform && s.w.effects.list[i.to].Action == bpf.RuleDeny
}

// apartFromPlain returns the number of classes in the tree.
func (s *Slot) apartFromPlain() int {
	if s.denies(s.plain) {
		return len(s.tree.leafs)
	}
	return len(s.tree.leafs) - 1
}

// flat reports whether all classes have the plain row, so that the slot needs no lookup of the class.
func (s *Slot) flat() bool { return s.apartFromPlain() == 0 }

// crowded reports whether so many classes have a row that it should become the plain one.
func crowded(s *Slot, row uint16) bool {
	plain := s.known.count - s.apartFromPlain()
	return row != s.plain && s.used[row].classes > 2*plain+rechoseMargin
}

// rechoose makes a row the plain one, if there is room for the chains then.
func rechoose(s *Slot, row uint16) {
	was, all := s.plain, make([]leafOf, 0, s.known.count)
	for number := range s.known.all {
		to, ok := s.tree.get(number)
		if !ok {
			to = was
		}
		all = append(all, leafOf{number, to})
	}
	if arrange(s, row, slices.Clone(all)); s.check(0) != nil {
		arrange(s, was, all)
	}
}

// classSet is a set of numbers of classes.
type classSet struct {
	words []uint64
	count int
}

func (c *classSet) set(number uint16, in bool) {
	word, bit := int(number/64), uint64(1)<<(number%64)
	for in && word >= len(c.words) {
		c.words = append(c.words, 0)
	}
	switch {
	case word >= len(c.words) || c.words[word]&bit != 0 == in:
	case in:
		c.words[word] |= bit
		c.count++
	default:
		c.words[word] &^= bit
		c.count--
	}
}

// all yields the numbers, ascending.
func (c *classSet) all(yield func(uint16) bool) {
	for word, bits := range c.words {
		for bit := range 64 {
			if bits>>bit&1 != 0 && !yield(uint16(word*64+bit)) {
				return
			}
		}
	}
}
