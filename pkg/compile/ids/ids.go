// Package ids hands out the small numbers by which the kernel knows classes, sets and rules.
package ids

import "slices"

// Pool hands out small numbers, the lowest free one first. A released number becomes free with the next call of reuse.
type Pool struct {
	next, limit uint32 // numbers from next up have never been taken; limit is the first that does not exist
	free        lowest
	freed       []uint32
}

// NewPool returns the numbers from first up to, not including, limit.
func NewPool(first, limit uint32) Pool { return Pool{next: first, limit: limit} }

// Next returns the lowest number that has never been taken.
func (s *Pool) Next() uint32 { return s.next }

// FreeBelow returns how many numbers below limit are free.
func (s *Pool) FreeBelow(limit uint32) int {
	free := int(max(min(limit, s.limit), s.next) - s.next)
	for _, n := range s.free.heap {
		if n < limit {
			free++
		}
	}
	return free
}

// Acquire returns the lowest free number, or 0 if there is none left.
func (s *Pool) Acquire() uint32 {
	if s.free.len() > 0 {
		return s.free.remove()
	}
	if s.next >= s.limit {
		return 0
	}
	s.next++
	return s.next - 1
}

// Claim takes certain numbers, before any other is taken.
func (s *Pool) Claim(taken []uint32) {
	slices.Sort(taken)
	var skipped []uint32
	for _, n := range taken {
		for ; s.next < n; s.next++ {
			skipped = append(skipped, s.next)
		}
		s.next = max(s.next, n+1)
	}
	s.free.fill(skipped)
}

// Release gives a number back.
func (s *Pool) Release(n uint32) { s.freed = append(s.freed, n) }

// Reuse makes released numbers free.
func (s *Pool) Reuse() { s.ReuseBut(nil) }

// ReuseBut makes released numbers free, but for those that are held.
func (s *Pool) ReuseBut(held map[uint32]bool) {
	still := s.freed[:0]
	for _, n := range s.freed {
		if held[n] {
			still = append(still, n)
		} else {
			s.free.add(n)
		}
	}
	s.freed = still
}

// Numbering gives keys small numbers, from 1. A key keeps its number while it is held; a number without a holder is
// taken back by Collect, and goes to another key only after the next call of Reuse.
type Numbering[K comparable] struct {
	Pool
	byKey map[K]uint32
	list  []numbered[K]           // by number: low numbers are given first, so that there are few gaps
	far   map[uint32]*numbered[K] // those from mostListed on, which only a damaged map in the kernel has
	loose []uint32                // may have no holder
}

// mostListed bounds the memory that a single high number takes.
const mostListed = 1 << 20

// numbered is what is known of a number.
type numbered[K comparable] struct {
	key   K
	used  bool // key has the number
	known bool // the kernel has its name, or is about to
	holds int32
}

// New returns a numbering whose highest number is last.
func New[K comparable](last uint32) *Numbering[K] {
	return &Numbering[K]{Pool: NewPool(1, last+1), byKey: map[K]uint32{}, far: map[uint32]*numbered[K]{}}
}

// at returns the place of a number.
func (n *Numbering[K]) at(num uint32) *numbered[K] {
	if num >= mostListed {
		if n.far[num] == nil {
			n.far[num] = &numbered[K]{}
		}
		return n.far[num]
	}
	if missing := int(num) + 1 - len(n.list); missing > 0 {
		n.list = append(n.list, make([]numbered[K], missing)...)
	}
	return &n.list[num]
}

// of returns what is known of a number.
func (n *Numbering[K]) of(num uint32) numbered[K] {
	switch far := n.far[num]; {
	case far != nil:
		return *far
	case int(num) < len(n.list):
		return n.list[num]
	}
	return numbered[K]{}
}

// Number returns the key's number, a new one if it has none, and 0 if there is none left.
func (n *Numbering[K]) Number(k K) uint32 {
	if num, ok := n.byKey[k]; ok {
		return num
	}
	num := n.Acquire()
	if num != 0 {
		n.Assign(k, num)
	}
	return num
}

// Assign gives a key, which has none, a number that has been claimed or taken.
func (n *Numbering[K]) Assign(k K, num uint32) {
	at := n.at(num)
	n.byKey[k], at.key, at.used = num, k, true
	n.loose = append(n.loose, num)
}

// Find returns the key's number; not ok, and 0, if it has none.
func (n *Numbering[K]) Find(k K) (num uint32, ok bool) {
	num, ok = n.byKey[k]
	return num, ok
}

// Has reports whether the key has a number.
func (n *Numbering[K]) Has(k K) bool { return n.byKey[k] != 0 }

// Key returns the key with the number; the zero key if nothing has it.
func (n *Numbering[K]) Key(num uint32) K { return n.of(num).key }

// Len returns how many keys have a number.
func (n *Numbering[K]) Len() int { return len(n.byKey) }

// Held returns the keys whose numbers are held, by number.
func (n *Numbering[K]) Held() map[uint32]K {
	all := make(map[uint32]K, len(n.byKey))
	for num := range n.list {
		if at := &n.list[num]; at.holds > 0 {
			all[uint32(num)] = at.key
		}
	}
	for num, at := range n.far {
		if at.holds > 0 {
			all[num] = at.key
		}
	}
	return all
}

// Loose returns how many numbers Collect has to look at.
func (n *Numbering[K]) Loose() int { return len(n.loose) }

// Known reports whether the kernel has the name of the number, or is about to.
func (n *Numbering[K]) Known(num uint32) bool { return n.of(num).known }

// SetKnown says that it does.
func (n *Numbering[K]) SetKnown(num uint32) { n.at(num).known = true }

// Rename gives another key, which has none, the number of one.
func (n *Numbering[K]) Rename(num uint32, k K) {
	at := n.at(num)
	delete(n.byKey, at.key)
	n.byKey[k], at.key, at.used = num, k, true
}

// Hold counts one more who needs the number; 0 has no holders.
func (n *Numbering[K]) Hold(num uint32) {
	if num != 0 {
		n.at(num).holds++
	}
}

// Drop is the opposite of hold.
func (n *Numbering[K]) Drop(num uint32) {
	if num == 0 {
		return
	}
	at := n.at(num)
	if at.holds--; at.holds == 0 {
		n.loose = append(n.loose, num)
	}
}

// Collect frees numbers without a holder, those that came to be so first, up to so many that are known. It returns
// those, ascending.
func (n *Numbering[K]) Collect(most int) []uint32 {
	var gone []uint32
	done := 0
	for _, num := range n.loose {
		if len(gone) >= most {
			break
		}
		done++
		at := n.at(num)
		if !at.used || at.holds > 0 {
			continue
		}
		delete(n.byKey, at.key)
		n.Release(num)
		if at.known {
			gone = append(gone, num)
		}
		*at = numbered[K]{}
	}
	n.loose = slices.Delete(n.loose, 0, done)
	slices.Sort(gone)
	return gone
}
