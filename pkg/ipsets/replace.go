package ipsets

import (
	"errors"
	"hash/fnv"
	"slices"
)

// Somebody can give the name of a set to another one (ipset swap), with as many entries and whatever properties. The kernel has a random
// number for each set, but shows it only for those of a newer revision than Margay's, which an older ipset command cannot list. So a set is
// recognised by two properties that others have no reason to choose: its revision, since the ipset command takes the newest that it and the
// kernel know, and its limit of entries, which differs from set to set by ownLimit.

// limits is the number of different limits of entries.
const limits = 4093

// ownLimit is what a set's name adds to its limit of entries.
func ownLimit(name string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // never fails
	return h.Sum32() % limits
}

// made reports whether a set in the kernel looks like one that was made by the spec.
func (s Spec) made(h Header) bool {
	return s.adoptable(h) == nil && h.Revision == s.Type.revision() && h.MaxEntries == s.MaxEntries
}

// replacement takes the place of a set that Margay has not made. It is written beside that one and then exchanged with it.
type replacement struct {
	kernel Kernel
	spec   Spec // of the set to replace
	left   bool // a set of the name beside is there; see Discard
}

func (r *replacement) beside() Spec {
	spec := r.spec
	spec.Name += "-new"
	return spec
}

// replaceForeign puts a set with the entries that were written in the place of one that Margay has not made, in one step for packets. The
// other one may lack marks or room, or forget entries after a time.
func (r *replacement) replaceForeign(held map[packed]value) (replaced bool, err error) {
	h, err := r.kernel.Header(r.spec.Name)
	if errors.Is(err, ErrNoSet) || err == nil && r.spec.made(h) {
		return false, nil
	}
	if err == nil {
		err = r.discard()
	}
	if err != nil {
		return false, err
	}
	beside := r.beside()
	if err := r.kernel.Create(beside); err != nil {
		return false, err
	}
	r.left = true
	writes := make([]Change, 0, len(held))
	for key, v := range held {
		writes = append(writes, Change{Entry: v.entry(key.key(r.spec.Family))})
	}
	if _, err := r.kernel.Write(beside, writes); err != nil {
		return false, err
	}
	if err := r.kernel.Swap(r.spec.Name, beside.Name); err != nil {
		return false, err
	}
	return true, nil
}

// discard destroys the set beside.
func (r *replacement) discard() error {
	if !r.left {
		return nil
	}
	if err := r.kernel.Destroy(r.beside().Name); err != nil && !errors.Is(err, ErrNoSet) {
		return err
	}
	r.left = false
	return nil
}

// Discard destroys the sets that Resync has replaced, if it has. Kernels before 6.7 free a set that a packet may still look up, so it waits
// for packets on their way before.
func Discard(sets []*Set, wait func() error) error {
	sets = slices.DeleteFunc(slices.Clone(sets), func(s *Set) bool { return !s.replacement.left })
	if len(sets) == 0 {
		return nil
	}
	if err := wait(); err != nil {
		return err
	}
	var errs []error
	for _, s := range sets {
		errs = append(errs, s.replacement.discard())
	}
	return errors.Join(errs...)
}
