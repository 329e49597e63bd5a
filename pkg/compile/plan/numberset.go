package plan

import (
	"iter"
	"math/bits"
)

// numberSet is a set of numbers of ids.Numbering, which are low and close together.
type numberSet struct{ words []uint64 }

// add adds a number and reports whether it is new.
func (s *numberSet) add(num uint32) bool {
	at, bit := int(num/64), uint64(1)<<(num%64)
	if missing := at + 1 - len(s.words); missing > 0 {
		s.words = append(s.words, make([]uint64, missing)...)
	}
	was := s.words[at]
	s.words[at] = was | bit
	return was&bit == 0
}

// all yields the numbers, ascending.
func (s *numberSet) all() iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for at, word := range s.words {
			for ; word != 0; word &= word - 1 {
				if !yield(uint32(at*64 + bits.TrailingZeros64(word))) {
					return
				}
			}
		}
	}
}
