package ipsets

import (
	"cmp"
	"errors"
	"slices"

	"github.com/margay-project/margay/pkg/nfnl"
)

// Repairs counts the differences between the kernel's set and the one that the Set had written.
type Repairs struct {
	Missing, Changed, Foreign int    // entries
	Created                   bool   // there was no set
	Replaced                  bool   // another set had the name
	Example                   string // one of the entries, "": there is none
}

// Len is the number of differences.
func (r Repairs) Len() int {
	n := r.Missing + r.Changed + r.Foreign
	if r.Created || r.Replaced {
		n++
	}
	return n
}

// Glance reports whether the set in the kernel is the one that was made, with as many entries as were left. It costs some 2 % of
// Differs' time (the kernel walks its buckets), so it can run often and finds soon that a set was flushed, is gone, or that another
// one has its name. It does not see altered entries; Differs reads all entries.
func (s *Set) Glance() (same bool, err error) {
	h, err := s.kernel.Header(s.spec.Name)
	if errors.Is(err, ErrNoSet) {
		return false, nil
	}
	return err == nil && s.spec.made(h) && int(h.Entries) == len(s.held), err
}

// Differs reads the set back, and reports whether others have altered it. It changes nothing in the kernel. It finds what Glance does not see: entries with other marks, and some
// in place of others. While it is not known how a write of the Set's own has ended, it reads nothing: then a difference need not be theirs.
func (s *Set) Differs() (bool, error) {
	if s.unsure {
		return false, nil
	}
	repairs, _, err := s.compare()
	if errors.Is(err, ErrNoSet) {
		return true, nil
	}
	return err == nil && repairs.Len() > 0, err
}

// Resync reads the set back and repairs what others changed. A set that is not there any more is created, and one that Margay has not
// made is replaced; see Discard. Otherwise each address has the value that it had or the right one meanwhile: the repair adds longer
// prefixes first, and then removes foreign entries, shorter prefixes first.
func (s *Set) Resync() (Repairs, error) {
	replaced, err := s.replacement.replaceForeign(s.held)
	if err != nil {
		return Repairs{Replaced: true}, err
	}
	repairs, writes, err := s.compare()
	repairs.Replaced = replaced
	if errors.Is(err, ErrNoSet) {
		if err := s.kernel.Create(s.spec); err != nil {
			return repairs, err
		}
		repairs, writes, err = s.compare()
		repairs.Created = true
	}
	if err != nil {
		return repairs, err
	}
	removals := slices.DeleteFunc(slices.Clone(writes), func(w Change) bool { return !w.Remove })
	slices.SortFunc(removals, func(a, b Change) int { return cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()) })
	writes = slices.DeleteFunc(writes, func(w Change) bool { return w.Remove })
	slices.SortFunc(writes, func(a, b Change) int { return cmp.Compare(b.Prefix.Bits(), a.Prefix.Bits()) })
	s.unsure = s.unsure || len(writes)+len(removals) > 0
	for _, w := range writes {
		s.observed.add(pack(w.Key))
	}
	if _, err := s.kernel.Write(s.spec, writes); err != nil {
		return repairs, err
	}
	for _, w := range removals { // its length may have had no other entry
		if err := s.anchor(&batch{set: s}, w.Prefix.Bits()); err != nil {
			return repairs, err
		}
	}
	removals = slices.DeleteFunc(removals, func(w Change) bool {
		_, anchored := s.held[pack(w.Key)] // a foreign entry at the place of a new anchor: the anchor has overwritten it
		return anchored
	})
	for _, w := range removals {
		s.observed.add(pack(w.Key))
	}
	if _, err := s.kernel.Write(s.spec, removals); err != nil {
		return repairs, err
	}
	s.unsure = false
	return repairs, nil
}

// compare returns the differences and the writes that repair them. It reads again if the kernel's table changed meanwhile.
func (s *Set) compare() (repairs Repairs, writes []Change, err error) {
	for range dumpAttempts {
		repairs, writes, err = s.read()
		if !errors.Is(err, nfnl.ErrInterrupted) && !errors.Is(err, nfnl.ErrOverrun) {
			break
		}
	}
	return repairs, writes, err
}

func (s *Set) read() (Repairs, []Change, error) {
	var repairs Repairs
	var writes []Change
	note := func(count *int, c Change) {
		*count++
		if repairs.Example == "" {
			repairs.Example = c.Key.String()
		}
		writes = append(writes, c)
	}
	s.round = !s.round
	err := s.kernel.List(s.spec, func(listed Entry) {
		split(s.spec.Type, Change{Entry: listed}, func(part Change) {
			key := pack(part.Key)
			v, ok := s.held[key]
			if !ok {
				note(&repairs.Foreign, Change{Entry: part.Entry, Remove: true})
				return
			}
			if !v.same(part.Entry) {
				note(&repairs.Changed, Change{Entry: v.entry(part.Key)})
			}
			v.seen = s.round
			s.held[key] = v
		})
	})
	if err != nil {
		s.mark(s.round)
		return repairs, nil, err
	}
	for key, v := range s.held {
		if v.seen != s.round {
			note(&repairs.Missing, Change{Entry: v.entry(key.key(s.spec.Family))})
		}
	}
	s.mark(s.round)
	return repairs, writes, nil
}

// mark gives all entries the value of seen for a round, so that the next reading can distinguish those it finds.
func (s *Set) mark(round bool) {
	for key, v := range s.held {
		if v.seen != round {
			v.seen = round
			s.held[key] = v
		}
	}
}
