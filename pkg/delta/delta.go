// Package delta tracks desired and actual entries, and computes the smallest difference between the two.
package delta

import "iter"

// Tracker tracks desired and actual state of a set of keyed entries. It stores one full copy (the actual state) and
// the pending changes; the desired state is the one overlaid with the other.
//
// Not safe for concurrent use.
type Tracker[K comparable, V comparable] struct {
	actual  map[K]V
	pending map[K]change[V]
	desired int // entries wanted
}

type change[V any] struct {
	value  V
	remove bool
}

// New returns a tracker that wants nothing and believes that nothing is there.
func New[K comparable, V comparable]() *Tracker[K, V] {
	return &Tracker[K, V]{actual: map[K]V{}, pending: map[K]change[V]{}}
}

// Set records that key shall have the value.
func (t *Tracker[K, V]) Set(key K, value V) {
	if _, wanted := t.Desired(key); !wanted {
		t.desired++
	}
	if have, ok := t.actual[key]; ok && have == value {
		t.clearPending(key)
		return
	}
	t.pending[key] = change[V]{value: value}
}

// Delete records that key shall have no entry.
func (t *Tracker[K, V]) Delete(key K) {
	if _, wanted := t.Desired(key); wanted {
		t.desired--
	}
	if _, ok := t.actual[key]; !ok {
		t.clearPending(key)
		return
	}
	t.pending[key] = change[V]{remove: true}
}

// Desired is the value that key shall have; false: none.
func (t *Tracker[K, V]) Desired(key K) (V, bool) {
	if c, ok := t.pending[key]; ok {
		return c.value, !c.remove
	}
	value, ok := t.actual[key]
	return value, ok
}

// Believed is the value that key is believed to have; false: none.
func (t *Tracker[K, V]) Believed(key K) (V, bool) {
	value, ok := t.actual[key]
	return value, ok
}

// Actual is the number of entries believed to be there.
func (t *Tracker[K, V]) Actual() int { return len(t.actual) }

// Len is the number of entries wanted.
func (t *Tracker[K, V]) Len() int { return t.desired }

// All yields the entries wanted, in no particular order. The tracker must not be changed meanwhile.
func (t *Tracker[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for key, c := range t.pending {
			if !c.remove && !yield(key, c.value) {
				return
			}
		}
		for key, value := range t.actual {
			if _, changed := t.pending[key]; changed {
				continue
			}
			if !yield(key, value) {
				return
			}
		}
	}
}

// Adopt makes the entries that were read both the actual and the desired ones. Nothing is pending then.
func (t *Tracker[K, V]) Adopt(read map[K]V) {
	t.actual, t.pending, t.desired = read, map[K]change[V]{}, len(read)
}

// Repairs is what SetActual found to differ from what the tracker had believed to be there.
type Repairs[K comparable] struct {
	Missing []K // were believed to be there
	Changed []K // have another value
	Foreign []K // were not believed to be there
}

// Len is the number of differences.
func (r Repairs[K]) Len() int { return len(r.Missing) + len(r.Changed) + len(r.Foreign) }

// SetActual replaces the believed state by the one that was read, which the tracker keeps. The desired state stays; the
// pending changes are computed again, so that entries that are not wanted are removed. It returns where belief was wrong.
func (t *Tracker[K, V]) SetActual(read map[K]V) Repairs[K] {
	var repairs Repairs[K]
	pending := map[K]change[V]{}
	for key, value := range read {
		believed, ok := t.actual[key]
		switch {
		case !ok:
			repairs.Foreign = append(repairs.Foreign, key)
		case believed != value:
			repairs.Changed = append(repairs.Changed, key)
		}
		if want, wanted := t.Desired(key); !wanted {
			pending[key] = change[V]{remove: true}
		} else if want != value {
			pending[key] = change[V]{value: want}
		}
	}
	for key := range t.actual {
		if _, ok := read[key]; !ok {
			repairs.Missing = append(repairs.Missing, key)
		}
	}
	for key, want := range t.All() {
		if _, ok := read[key]; !ok {
			pending[key] = change[V]{value: want}
		}
	}
	t.actual, t.pending = read, pending
	return repairs
}

// Pending is the number of changes that remain to be made.
func (t *Tracker[K, V]) Pending() int { return len(t.pending) }

// IsPending reports whether a change of key remains to be made.
func (t *Tracker[K, V]) IsPending(key K) bool {
	_, ok := t.pending[key]
	return ok
}

// PendingSets returns entries to be written, at most so many, in no particular order; the slices are parallel and the
// caller's.
func (t *Tracker[K, V]) PendingSets(most int) (keys []K, values []V) {
	for key, c := range t.pending {
		if len(keys) >= most {
			break
		}
		if !c.remove {
			keys, values = append(keys, key), append(values, c.value)
		}
	}
	return keys, values
}

// PendingDeletes returns keys to be removed, at most so many, in no particular order; the slice is the caller's.
func (t *Tracker[K, V]) PendingDeletes(most int) []K {
	var keys []K
	for key, c := range t.pending {
		if len(keys) >= most {
			break
		}
		if c.remove {
			keys = append(keys, key)
		}
	}
	return keys
}

// Written says that the pending change of key has been made. Without a pending change it does nothing.
func (t *Tracker[K, V]) Written(key K) {
	c, ok := t.pending[key]
	if !ok {
		return
	}
	if c.remove {
		delete(t.actual, key)
	} else {
		t.actual[key] = c.value
	}
	t.clearPending(key)
}

// clearPending forgets the pending change of key, and the space of all of them after the last.
func (t *Tracker[K, V]) clearPending(key K) {
	delete(t.pending, key)
	if len(t.pending) == 0 {
		t.pending = map[K]change[V]{}
	}
}
