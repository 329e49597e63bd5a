package ipsets

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/margay-project/margay/pkg/nfnl"
)

// ListAll returns all entries of a set, in no particular order. If the kernel's table changes meanwhile, it reads again.
func ListAll(kernel Kernel, spec Spec) ([]Entry, error) {
	var list []Entry
	var err error
	for range dumpAttempts {
		list = list[:0]
		err = kernel.List(spec, func(e Entry) { list = append(list, e) })
		if !errors.Is(err, nfnl.ErrInterrupted) && !errors.Is(err, nfnl.ErrOverrun) {
			break
		}
	}
	return list, err
}

// Altered returns how entries that were listed differ from those that the Set has written, in words, sorted. It changes nothing.
func (s *Set) Altered(listed []Entry) []string {
	var found []string
	there := map[packed]bool{}
	for _, e := range listed {
		split(s.spec.Type, Change{Entry: e}, func(part Change) {
			key := pack(part.Key)
			there[key] = true
			switch want, ok := s.held[key]; {
			case !ok:
				found = append(found, fmt.Sprintf("has the entry %s, should not have it", name(part.Key)))
			case !want.same(part.Entry):
				found = append(found, fmt.Sprintf("has %#x/%#x for %s, should have %#x/%#x", part.Mark.Value, part.Mark.Mask, name(part.Key), want.mark.Value, want.mark.Mask))
			}
		})
	}
	for key := range s.held {
		if !there[key] {
			found = append(found, "lacks the entry "+name(key.key(s.spec.Family)))
		}
	}
	slices.SortFunc(found, cmp.Compare[string])
	return found
}

// name returns a key as text, with its flags if it has any: only others set flags.
func name(k Key) string {
	if k.Flags != 0 {
		return fmt.Sprintf("%v with flags %#x", k, k.Flags)
	}
	return k.String()
}
