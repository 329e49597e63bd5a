package ids

import "slices"

// lowest are numbers of which the lowest comes first: a binary heap. A policy of thousands of rules that is replaced in hundreds of parts
// gives back a few of them with each part, while tens of thousands are free.
type lowest struct{ heap []uint32 }

func (s *lowest) len() int { return len(s.heap) }

// fill adds numbers. It is for many of them; add is for few.
func (s *lowest) fill(numbers []uint32) {
	s.heap = append(s.heap, numbers...)
	slices.Sort(s.heap) // an ascending list is a heap
}

// add adds a number.
func (s *lowest) add(n uint32) {
	s.heap = append(s.heap, n)
	for at := len(s.heap) - 1; at > 0; {
		up := (at - 1) / 2
		if s.heap[up] <= s.heap[at] {
			return
		}
		s.heap[up], s.heap[at] = s.heap[at], s.heap[up]
		at = up
	}
}

// remove removes the lowest number and returns it. There must be one.
func (s *lowest) remove() uint32 {
	first, last := s.heap[0], len(s.heap)-1
	s.heap[0] = s.heap[last]
	s.heap = s.heap[:last]
	for at := 0; ; {
		down := 2*at + 1
		if down >= last {
			return first
		}
		if down+1 < last && s.heap[down+1] < s.heap[down] {
			down++
		}
		if s.heap[at] <= s.heap[down] {
			return first
		}
		s.heap[at], s.heap[down] = s.heap[down], s.heap[at]
		at = down
	}
}
