package classes

import "slices"

// nextSets says whether it is known what sets the addresses of an unknown class are to be in.
type nextSets uint8

const (
	nextUnseen  nextSets = iota
	nextIs               // the list of the class
	nextDiffers          // not the same for all of its addresses
)

// foresee notes what sets an entry of an unknown class is to be in, from the next plan on. New tables judge the class so until then.
func (r *registry) foresee(id uint32, f int, list listID) {
	s := &r.byID[id]
	switch {
	case s.family != f || s.next == nextIs && s.list != list:
		r.neverForesee(id)
	case s.next == nextUnseen:
		s.next, s.list = nextIs, list
		r.coming = append(r.coming, id)
		r.change(id)
	}
}

// neverForesee notes that some addresses of an unknown class are to be in other sets than others.
func (r *registry) neverForesee(id uint32) {
	if s := &r.byID[id]; s.next != nextDiffers {
		s.next = nextDiffers
		r.change(id)
	}
}

// SomeUnknown reports whether addresses have classes whose sets are unknown.
func (c *Classes) SomeUnknown() bool {
	return slices.ContainsFunc(c.byID, func(s classState) bool { return s.unknown && s.entries > 0 })
}

// Foreseen are the unknown classes that All has.
func (r *registry) Foreseen() []uint32 {
	return slices.DeleteFunc(slices.Clone(r.coming), func(id uint32) bool { return r.byID[id].next != nextIs })
}
