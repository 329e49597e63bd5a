package chains

import "github.com/margay-project/margay/pkg/compile/classes"

// numberOf returns the number of a class in the mark.
func numberOf(class uint32) uint16 { return uint16(class + 1) }

// Set adds a class, or changes the sets of a known one. Every slot needs every new class before an address has it, classes of the
// other family included, since their numbers may have been those of its own. The rows of a plan are not enough: a class that a slot
// does not know has its plain row, which may allow packets. A class without a row in the table is denied. After an error the slot has
// the class as before, or denies it; Delta has the chains for that, too.
func (s *Slot) Set(c classes.Class) (Delta, error) {
	if c.Family != s.o.Family {
		return s.Forget(c.ID), nil
	}
	if _, err := s.o.Marks.Class(c.ID); err != nil {
		return Delta{}, err
	}
	number, row := numberOf(c.ID), s.rows.of(c)
	s.layout.know(number)
	if err := s.fits(row); err != nil {
		if s.layout.allowedAsPlain(number) {
			return s.put(number, 0), err
		}
		return Delta{}, err
	}
	if s.layout.has(number, row) || !s.layout.crowded(row) {
		return s.put(number, row), nil
	}
	before := s.Chains()
	s.put(number, row)
	s.rearrange(row)
	return Difference(before, s.Chains()), nil
}

// fits returns an error if the slot has no room for a class with the row.
func (s *Slot) fits(row uint16) error {
	i, err := s.rows.info(row)
	if err != nil || s.layout.users(row) > 0 {
		return err
	}
	return s.check(i.size + s.layout.perLeaf())
}

// rearrange makes a row the plain one, if there is room for the chains then.
func (s *Slot) rearrange(plain uint16) {
	if was := s.layout.become(plain); s.check(0) != nil {
		s.layout.become(was)
	}
}

// Forget removes a class, which no address may have.
func (s *Slot) Forget(class uint32) Delta {
	if class >= s.o.Marks.Most() {
		return Delta{}
	}
	s.layout.forget(numberOf(class))
	return s.put(numberOf(class), s.layout.plain)
}

// put gives a number in the mark a row.
func (s *Slot) put(number, row uint16) Delta {
	if s.layout.has(number, row) {
		return Delta{}
	}
	below, gone := s.layout.put(number, row)
	return Delta{Set: append(append([]Chain{s.first()}, below...), s.rows.common()...), Gone: gone}
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
