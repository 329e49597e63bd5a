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

// Observation is what a Set has written since Observe.
type Observation struct {
	set     *Set
	wanted  func() bool
	written map[packed]bool
	overrun bool // there was no room for all, or they are not wanted any more
}

// mostNoted bounds the keys that are noted.
const mostNoted = 1 << 16

// Observe returns an Observation of the keys that the Set writes from now on, as long as wanted returns true. It ends the one before.
func (s *Set) Observe(wanted func() bool) *Observation {
	s.observed = &Observation{set: s, wanted: wanted, written: map[packed]bool{}}
	return s.observed
}

func (o *Observation) add(key packed) {
	switch {
	case o == nil || o.overrun || o.written[key]:
	case len(o.written) < mostNoted && o.wanted():
		o.written[key] = true
	default:
		o.written, o.overrun = nil, true
	}
}

// Altered returns how entries that were listed after Observe differ from those that the Set has written, in words, sorted. It changes
// nothing. A key that the Set has written since Observe is left out: the kernel has acknowledged the write since. Not ok: the entries
// cannot be compared, since the Set has written too many keys, or does not know how a write has ended.
func (o *Observation) Altered(listed []Entry) (found []string, ok bool) {
	s := o.set
	if o.overrun || s.observed != o || s.unsure {
		return nil, false
	}
	there := map[packed]bool{}
	for _, e := range listed {
		split(s.spec.Type, Change{Entry: e}, func(part Change) {
			key := pack(part.Key)
			if there[key] = true; o.written[key] {
				return
			}
			switch want, ok := s.held[key]; {
			case !ok:
				found = append(found, fmt.Sprintf("has the entry %s, should not have it", name(part.Key)))
			case !want.same(part.Entry):
				found = append(found, fmt.Sprintf("has %#x/%#x for %s, should have %#x/%#x", part.Mark.Value, part.Mark.Mask, name(part.Key), want.mark.Value, want.mark.Mask))
			}
		})
	}
	for key := range s.held {
		if !there[key] && !o.written[key] {
			found = append(found, "lacks the entry "+name(key.key(s.spec.Family)))
		}
	}
	slices.SortFunc(found, cmp.Compare[string])
	return found, true
}

// name returns a key as text, with its flags if it has any: only others set flags.
func name(k Key) string {
	if k.Flags != 0 {
		return fmt.Sprintf("%v with flags %#x", k, k.Flags)
	}
	return k.String()
}
