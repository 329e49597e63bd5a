package verify

import (
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// Classes compares the sets of the kernel's classes with the sets that the addresses of the class are in.
type Classes struct {
	byAtom map[uint32]uint32      // numbers
	known  map[uint32]model.SetID // by number
}

// NewClasses returns a Classes for sets that are among the atoms.
func NewClasses(atoms *Atoms, sets []Set) *Classes {
	c := &Classes{byAtom: map[uint32]uint32{}, known: map[uint32]model.SetID{}}
	for _, s := range sets {
		if atom, ok := atoms.sets[s.ID]; ok {
			c.byAtom[atom], c.known[s.Number] = s.Number, s.ID
		}
	}
	return c
}

// Wrong reports whether kernel, the sets that the kernel has the class of a pair in, differ from the sets of the pair's addresses.
func (c *Classes) Wrong(p *Pair, kernel []uint32) bool {
	var want []uint32
	for _, atom := range p.Signature {
		if n, ok := c.byAtom[atom]; ok {
			want = append(want, n)
		}
	}
	slices.Sort(want)
	return !slices.Equal(want, c.ofKnown(kernel))
}

// ofKnown returns the numbers of sets that are compared. The others are being added or removed.
func (c *Classes) ofKnown(kernel []uint32) []uint32 {
	return slices.DeleteFunc(slices.Clone(kernel), func(n uint32) bool { return c.known[n] == "" })
}

// Differs returns the first set that has the address but not its class in the kernel, or the class but not the address; not is: there
// is none. now are the present sets: those that have come or gone, or have another number since the comparison began, are left out.
// contains reports memberships by the present objects.
func (c *Classes) Differs(a netip.Addr, kernel []uint32, now []Set, contains func(model.SetID, netip.Addr) bool) (id model.SetID, is bool) {
	for _, s := range now {
		if c.known[s.Number] != s.ID {
			continue
		}
		in := slices.ContainsFunc(s.Members, func(p netip.Prefix) bool { return p.Contains(a) })
		if s.Members == nil {
			in = contains(s.ID, a)
		}
		if _, has := slices.BinarySearch(kernel, s.Number); has != in {
			return s.ID, true
		}
	}
	return "", false
}
