package compile

import (
	"cmp"
	"slices"
)

// ids hands out small numbers, the lowest free one first. A released number becomes free with the next call of reuse.
type ids struct {
	next, limit uint32   // numbers from next up have never been taken; limit is the first that does not exist
	free        []uint32 // descending
	freed       []uint32
}

// take returns the lowest free number, or 0 if there is none left.
func (s *ids) take() uint32 {
	if n := len(s.free); n > 0 {
		low := s.free[n-1]
		s.free = s.free[:n-1]
		return low
	}
	if s.next >= s.limit {
		return 0
	}
	s.next++
	return s.next - 1
}

// claim takes certain numbers, before any other is taken.
func (s *ids) claim(taken []uint32) {
	slices.Sort(taken)
	for _, n := range taken {
		for ; s.next < n; s.next++ {
			s.free = append(s.free, s.next)
		}
		s.next = max(s.next, n+1)
	}
	s.sort()
}

func (s *ids) release(n uint32) { s.freed = append(s.freed, n) }

func (s *ids) reuse() {
	if len(s.freed) > 0 {
		s.free = append(s.free, s.freed...)
		s.freed = s.freed[:0]
		s.sort()
	}
}

func (s *ids) sort() { slices.SortFunc(s.free, func(a, b uint32) int { return cmp.Compare(b, a) }) }

// numbering gives keys small numbers, from 1. A key keeps its number while it is held; a number that nobody holds is
// taken back by settle, and goes to another key only after the next call of reuse.
type numbering[K comparable] struct {
	ids
	byKey map[K]uint32
	keys  map[uint32]K
	holds map[uint32]int
	known map[uint32]bool // the kernel has its name, or is about to
	loose []uint32        // may be held by nobody
}

// newNumbering returns a numbering whose highest number is last.
func newNumbering[K comparable](last uint32) *numbering[K] {
	return &numbering[K]{
		ids:   ids{next: 1, limit: last + 1},
		byKey: map[K]uint32{},
		keys:  map[uint32]K{},
		holds: map[uint32]int{},
		known: map[uint32]bool{},
	}
}

// number returns the key's number, a new one if it has none, and 0 if there is none left.
func (n *numbering[K]) number(k K) uint32 {
	if num, ok := n.byKey[k]; ok {
		return num
	}
	num := n.take()
	if num != 0 {
		n.assign(k, num)
	}
	return num
}

func (n *numbering[K]) assign(k K, num uint32) {
	n.byKey[k], n.keys[num] = num, k
	n.loose = append(n.loose, num)
}

// rename gives another key, which has none, the number of one.
func (n *numbering[K]) rename(num uint32, k K) {
	delete(n.byKey, n.keys[num])
	n.byKey[k], n.keys[num] = num, k
}

// hold and drop count who needs the number; 0 is nobody's.
func (n *numbering[K]) hold(num uint32) {
	if num != 0 {
		n.holds[num]++
	}
}

func (n *numbering[K]) drop(num uint32) {
	if num == 0 {
		return
	}
	if n.holds[num]--; n.holds[num] == 0 {
		delete(n.holds, num)
		n.loose = append(n.loose, num)
	}
}

// settle takes back numbers that nobody holds, those that came to be so first, up to so many that are known. It returns
// those, ascending.
func (n *numbering[K]) settle(most int) []uint32 {
	var gone []uint32
	done := 0
	for _, num := range n.loose {
		if len(gone) >= most {
			break
		}
		done++
		k, ok := n.keys[num]
		if !ok || n.holds[num] > 0 {
			continue
		}
		delete(n.byKey, k)
		delete(n.keys, num)
		n.release(num)
		if n.known[num] {
			gone = append(gone, num)
			delete(n.known, num)
		}
	}
	n.loose = slices.Delete(n.loose, 0, done)
	slices.Sort(gone)
	return gone
}
