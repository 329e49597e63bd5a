package plan

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/ids"
	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/model"
)

// setNumbers numbers the sets and knows who needs each of them. It adds their members to the classes, and removes the
// members of sets that no program refers to any more.
type setNumbers struct {
	*ids.Numbering[model.SetID]
	classes *classes.Classes
	uses    setUses
	inner   int // see mostInside
	atOnce  int // see mostAtOnce
	// Sets that may have lost their last reference or definition, and are to be looked at. Each entry holds the number.
	review  []uint32
	changed changedSets
	coming  comings
	past    pastSets
}

// setUse says who needs a set.
type setUse struct {
	defined bool           // Changes announced it and did not take it back
	orphan  bool           // it was defined once, and has members still
	loaded  bool           // its members are those of a Program's NetSets
	nets    []netip.Prefix // those
	joined  int            // so many of nets are members
	cover   *cover         // of the one that is coming or going
	coming  []netip.Prefix // members that have not joined yet, ascending: they do when it is opened
	wide    bool           // some of these are not single addresses
	thinned classes.Place  // up to which its members have left
	named   bool           // the kernel has its name, and classes tell its members apart
	refs    int            // programs
	hidden  bool           // named, but classes do not tell its members apart: see crowd
	lacking bool           // an orphan, with members that are not known: they are in classes that the kernel did not have the sets of
}

func newSetNumbers(c *classes.Classes) *setNumbers {
	return &setNumbers{Numbering: ids.New[model.SetID](1<<31 - 1), classes: c, inner: mostInside, atOnce: mostAtOnce, coming: comings{}}
}

// number returns the number of the set.
func (s *setNumbers) number(id model.SetID) uint32 {
	if text := NameText(string(id)); text != string(id) && !s.Has(id) {
		if num, ok := s.Find(model.SetID(text)); ok { // from the kernel, where it had to be cut short
			s.Rename(num, id)
		}
	}
	return s.Number(id)
}

func (s *setNumbers) use(num uint32) *setUse {
	u := s.uses.get(num)
	if u == nil {
		u = &setUse{}
		s.uses.put(num, u)
	}
	return u
}

// adopt makes the sets found in the kernel orphans: they keep their numbers until policies refer to them, or are dropped.
func (s *setNumbers) adopt(names map[uint32]model.SetID) {
	s.Claim(slices.Collect(maps.Keys(names)))
	for _, num := range slices.Sorted(maps.Keys(names)) {
		s.Assign(names[num], num)
		s.Hold(num)
		*s.use(num) = setUse{named: true, orphan: true}
		s.Hold(num)
		s.review = append(s.review, num)
		s.classes.Show(num)
	}
}

// update takes in a change of a set, whose members follow with changeMembers. One that is gone has its last members until no program refers to
// it. It reports whether a set that was gone is defined again, so that it has lost the members which it had before.
func (s *setNumbers) update(id model.SetID, change *model.SetChange) (again bool) {
	num := s.number(id)
	u := s.use(num)
	s.past.note(id, !change.Gone)
	switch {
	case change.Gone && !u.defined: // it came and went while changes waited
		return false
	case u.orphan: // defined again: all of its members are to come
		u.defined, u.orphan, u.lacking, again = true, false, false, true
		s.coming.await(num, u, nil)
		s.classes.Empty(num)
	case !u.defined:
		u.defined = true
		s.Hold(num)
		if u.refs == 0 && len(change.Added) > s.atOnce {
			s.coming.await(num, u, change.Added)
			return false
		}
	case len(u.coming) > 0:
		s.outrun(num, u, change.Removed)
	}
	s.changed.note(num, change)
	if change.Gone {
		u.defined, u.orphan = false, true
		s.Hold(num)
		s.review = append(s.review, num)
	}
	return again
}

// refer holds the numbers of a program's sets.
func (s *setNumbers) refer(nums []uint32) {
	for _, num := range nums {
		s.Hold(num)
		s.use(num).refs++
	}
}

// unrefer is for a program that is gone. Its sets are to be looked at; until then they keep their numbers.
func (s *setNumbers) unrefer(nums []uint32) {
	for _, num := range nums {
		s.uses.get(num).refs--
	}
	s.review = append(s.review, nums...)
}

// load notes which of a program's sets have their members from it: those that have lists. They become members when the set is opened, or
// now: those of a table that is in the kernel are there already.
func (s *setNumbers) load(sets []uint32, lists [][]netip.Prefix, now bool) {
	for i, nets := range lists {
		if nets == nil {
			continue
		}
		num := sets[i]
		u := s.use(num)
		if u.loaded {
			continue
		}
		u.loaded, u.lacking = true, false
		if u.orphan {
			u.orphan = false
			s.Drop(num)
		}
		if u.nets = nets; now {
			s.join(num, nets)
			u.joined = len(nets)
		}
	}
}

// listsOf returns the CIDR lists that define sets of a program, by the index of their number in sets, which ascend; nil: it defines others.
// Not ok: spend wants it to end.
func (s *setNumbers) listsOf(p *match.Program, sets []uint32, spend spender) (lists [][]netip.Prefix, ok bool) {
	lists = make([][]netip.Prefix, len(sets))
	n := 0
	for id, nets := range p.NetSets {
		num, _ := s.Find(id)
		if at, ok := slices.BinarySearch(sets, num); ok {
			lists[at] = nets
		}
		if n++; n%sortedAtOnce == 0 && !spend(sortedAtOnce) {
			return nil, false
		}
	}
	return lists, true
}

// join makes prefixes members of a set.
func (s *setNumbers) join(num uint32, prefixes []netip.Prefix) {
	for _, prefix := range prefixes {
		s.classes.Add(prefix, num)
	}
}

// orphans are the sets that are not defined any more and have members still.
func (s *setNumbers) orphans() map[uint32]bool {
	all := map[uint32]bool{}
	for num, u := range s.uses.all() {
		if u.orphan {
			all[num] = true
		}
	}
	return all
}

// toClean is the number of sets to review.
func (s *setNumbers) toClean() int { return len(s.review) }

// clean removes the sets that no program refers to any more from the classes, at a cost of at most most. It returns the
// rest of most, and the numbers of the sets that leave the kernel. A set that does not leave yet keeps its number and its
// members. They mean nothing to any table, and the set may be opened again.
func (s *setNumbers) clean(most int) (left int, dropped []uint32) {
	var emptied []uint32
	left = most
	for left > 0 && len(s.review) > 0 {
		num := s.review[0]
		if u := s.uses.get(num); u != nil && u.refs == 0 {
			if left = s.empty(num, u, left); !u.isEmpty() {
				break
			}
			if u.orphan {
				var done bool
				if left, done = s.thin(num, u, left); !done {
					break
				}
			}
			left -= memberCost
			if u.named {
				dropped = append(dropped, num)
			}
			if u.orphan {
				emptied = append(emptied, num)
			}
			s.forget(num, u)
		}
		s.review = s.review[1:]
		s.Drop(num)
	}
	if len(s.review) == 0 {
		s.review = nil
	}
	slices.Sort(dropped)
	s.classes.Empty(emptied...)
	s.classes.Hide(dropped...)
	return left, dropped
}

// forget is for a set that has no members from a program any more.
func (s *setNumbers) forget(num uint32, u *setUse) {
	if u.orphan {
		s.Drop(num)
	}
	u.named, u.hidden, u.orphan, u.lacking, u.loaded, u.nets = false, false, false, false, false, nil
	if !u.defined { // else members may wait for the next program
		s.coming.await(num, u, nil)
		s.uses.remove(num)
	}
}

// named returns the names of the sets in the kernel by their numbers.
func (s *setNumbers) named() map[uint32]model.SetID {
	all := map[uint32]model.SetID{}
	for num, u := range s.uses.all() {
		if u.named {
			all[num] = s.Key(num)
		}
	}
	return all
}
