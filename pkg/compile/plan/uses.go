package plan

import (
	"iter"
	"maps"
	"slices"
)

// setUses are the uses of sets by number. Numbers are low and close together, but for those of a damaged map in the kernel: a list is
// several times as fast as a map, and a policy may come with thousands of sets.
type setUses struct {
	list []*setUse
	far  map[uint32]*setUse
}

// mostListed bounds the memory that a single high number takes.
const mostListed = 1 << 20

// get returns the use of a set; nil: there is none.
func (s *setUses) get(num uint32) *setUse {
	if int(num) < len(s.list) {
		return s.list[num]
	}
	return s.far[num]
}

// put enters a use that is not there.
func (s *setUses) put(num uint32, u *setUse) {
	switch {
	case num >= mostListed && s.far == nil:
		s.far = map[uint32]*setUse{num: u}
	case num >= mostListed:
		s.far[num] = u
	default:
		if missing := int(num) + 1 - len(s.list); missing > 0 {
			s.list = append(s.list, make([]*setUse, missing)...)
		}
		s.list[num] = u
	}
}

func (s *setUses) remove(num uint32) {
	if int(num) < len(s.list) {
		s.list[num] = nil
	}
	delete(s.far, num)
}

// all yields the uses, by ascending number.
func (s *setUses) all() iter.Seq2[uint32, *setUse] {
	return func(yield func(uint32, *setUse) bool) {
		for num, u := range s.list {
			if u != nil && !yield(uint32(num), u) {
				return
			}
		}
		for _, num := range slices.Sorted(maps.Keys(s.far)) {
			if !yield(num, s.far[num]) {
				return
			}
		}
	}
}

// noteLacking is for the first plan, if addresses have unknown classes: they may be in any of the sets that only tables of an earlier agent
// refer to.
func (s *setUses) noteLacking() {
	for _, u := range s.all() {
		u.lacking = u.orphan
	}
}

// someLacking reports whether one of the sets is lacking.
func (s *setUses) someLacking(nums []uint32) bool {
	return slices.ContainsFunc(nums, func(num uint32) bool {
		u := s.get(num)
		return u != nil && u.lacking
	})
}

// lacksMembers reports whether not all members of a set are known: it is an earlier agent's that nothing defines now, or it is leaving.
func (s *setUses) lacksMembers(num uint32) bool {
	u := s.get(num)
	return u == nil || !u.named || u.orphan || !u.isOpen()
}
