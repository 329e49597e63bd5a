// Package keyset keeps very many values by a key that they hold themselves, in little memory: 9 bytes a slot, where a map
// has the key and a pointer in each.
package keyset

import (
	"hash/maphash"
	"iter"
)

// Set has at most one value of each key. A value's key must not change while it is in the set. The set gives memory back
// when most of its values are gone. It belongs to one goroutine.
type Set[K comparable, T any] struct {
	key   func(*T) K
	slots []*T
	tags  []uint8 // of each slot: free, left, or bits of the hash of its value's key
	count int     // values
	taken int     // slots that are not free: values, and those that values have left
}

const (
	free = iota // no value was here: the search of a key ends
	left        // a value was here: it goes on
	tags        // values' begin here
)

const smallest = 4 // slots

// seed makes it unknown which keys collide: those who choose them may mean harm.
var seed = maphash.MakeSeed()

// New returns an empty set of values that have this key.
func New[K comparable, T any](key func(*T) K) Set[K, T] { return Set[K, T]{key: key} }

// Len is the number of values.
func (s *Set[K, T]) Len() int { return s.count }

// Get returns the value of the key; nil if there is none.
func (s *Set[K, T]) Get(k K) *T {
	if i := s.find(k, maphash.Comparable(seed, k)); i >= 0 {
		return s.slots[i]
	}
	return nil
}

// Put adds a value, in place of one that has its key.
func (s *Set[K, T]) Put(v *T) {
	k := s.key(v)
	hash := maphash.Comparable(seed, k)
	if i := s.find(k, hash); i >= 0 {
		s.slots[i] = v
		return
	}
	if s.taken >= len(s.slots)-max(1, len(s.slots)/8) { // one is always free
		s.resize(s.count + 1)
	}
	s.insert(v, hash)
}

// Delete takes the value of the key out, if there is one.
func (s *Set[K, T]) Delete(k K) {
	i := s.find(k, maphash.Comparable(seed, k))
	if i < 0 {
		return
	}
	s.slots[i] = nil
	s.count--
	if s.tags[i] = left; s.tags[s.after(i)] == free {
		s.tags[i] = free
		s.taken--
	}
	if s.count == 0 || len(s.slots) > 4*smallest && s.count < len(s.slots)/4 {
		s.resize(s.count)
	}
}

// All yields every value, in no order. Values that are put or deleted meanwhile are like those of a map: one that is deleted
// before it was yielded is not yielded, and one that is put may be.
func (s *Set[K, T]) All() iter.Seq[*T] {
	return func(yield func(*T) bool) {
		slots := s.slots
		for _, v := range slots {
			if v == nil {
				continue
			}
			if moved := len(s.slots) != len(slots) || &s.slots[0] != &slots[0]; moved && s.Get(s.key(v)) != v {
				continue
			}
			if !yield(v) {
				return
			}
		}
	}
}

// find returns the slot of the key's value, -1 if there is none.
func (s *Set[K, T]) find(k K, hash uint64) int {
	if s.count == 0 {
		return -1
	}
	tag := tagOf(hash)
	for i := s.first(hash); ; i = s.after(i) {
		switch s.tags[i] {
		case free:
			return -1
		case tag:
			if s.key(s.slots[i]) == k {
				return i
			}
		}
	}
}

// insert puts a value whose key the set lacks into a free slot. The set must have a free slot.
func (s *Set[K, T]) insert(v *T, hash uint64) {
	i := s.first(hash)
	for s.tags[i] >= tags {
		i = s.after(i)
	}
	if s.tags[i] == free {
		s.taken++
	}
	s.slots[i], s.tags[i] = v, tagOf(hash)
	s.count++
}

// resize makes room for so many values and half as many again.
func (s *Set[K, T]) resize(values int) {
	was := s.slots
	s.slots, s.tags, s.count, s.taken = nil, nil, 0, 0
	if values == 0 {
		return
	}
	size := max(smallest, values+values/2+2)
	s.slots, s.tags = make([]*T, size), make([]uint8, size)
	for _, v := range was {
		if v != nil {
			s.insert(v, maphash.Comparable(seed, s.key(v)))
		}
	}
}

// first is the slot where the search of a key begins. The number of slots may be any, so that few are free.
func (s *Set[K, T]) first(hash uint64) int { return int(hash >> 32 * uint64(len(s.slots)) >> 32) }

func (s *Set[K, T]) after(i int) int {
	if i++; i < len(s.slots) {
		return i
	}
	return 0
}

func tagOf(hash uint64) uint8 { return uint8(max(hash&0xff, tags)) }
