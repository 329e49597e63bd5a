package chains

import "github.com/margay-project/margay/pkg/compile/classes"

// Set adds a class, or changes the sets of a known one. Every slot needs every new class before an address has it, classes of the
// other family included, since their numbers may have been those of its own. The rows of a plan are not enough: a class that a slot
// does not know has its plain row, which may allow packets. A class without a row in the table is denied. After an error the slot has
// the class as before, or denies it; Delta has the chains for that, too.
func (s *Slot) Set(c classes.Class) (Delta, error) {
	if c.Family != s.w.o.Family {
		return s.Forget(c.ID), nil
	}
	if _, err := s.w.o.Marks.Class(c.ID); err != nil {
		return Delta{}, err
	}
	number := uint16(c.ID + 1)
	s.known.set(number, true)
	row := s.rows.of(c)
	if err := fits(s, row); err != nil {
		if _, had := s.tree.get(number); !had && !s.denies(s.plain) {
			return s.lay(number, 0), err
		}
		return Delta{}, err
	}
	if was, had := s.tree.get(number); had && was == row || !crowded(s, row) {
		return s.lay(number, row), nil
	}
	before := s.Chains()
	s.lay(number, row)
	rechoose(s, row)
	return Difference(before, s.Chains()), nil
}

// fits returns an error if the slot has no room for a class with the row.
func fits(s *Slot, row uint16) error {
	i, err := s.info(row)
	if err != nil || i.classes > 0 {
		return err
	}
	return s.check(i.size + perLeaf(s))
}

// Forget removes a class, which no address may have.
func (s *Slot) Forget(class uint32) Delta {
	if class >= s.w.o.Marks.Most() {
		return Delta{}
	}
	s.known.set(uint16(class+1), false)
	return s.lay(uint16(class+1), s.plain)
}

// lay gives a number in the mark a row.
func (s *Slot) lay(number, row uint16) (d Delta) {
	was, had := s.tree.get(number)
	if had && was == row || !had && row == s.plain {
		return Delta{}
	}
	fresh := row != s.plain && s.used[row].classes == 0 && s.apart(s.used[row])
	d.Set, d.Gone = s.tree.change(number, func() {
		if row == s.plain {
			s.tree.remove(number)
			return
		}
		s.tree.set(number, row)
		s.refer(row)
	})
	d.Set = append([]Chain{s.first()}, d.Set...)
	if fresh {
		d.Set = append(d.Set, s.chainsOf(row)...)
	}
	d.Set = append(d.Set, s.common()...)
	if had && s.release(was) {
		for _, c := range s.chainsOf(was) {
			d.Gone = append(d.Gone, c.Name)
		}
	}
	return d
}

// Difference returns the Delta from old to now: it sets all chains of now, and removes those of old that are not in now.
func Difference(old, now []Chain) Delta {
	d := Delta{Set: now}
	there := map[string]bool{}
	for _, c := range now {
		there[c.Name] = true
	}
	for _, c := range old {
		if !there[c.Name] {
			d.Gone = append(d.Gone, c.Name)
		}
	}
	return d
}
