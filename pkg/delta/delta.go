// Package delta tracks desired and actual entries, and computes the smallest difference between the two.
package delta

import (
	"iter"
	"slices"
)

// Tracker tracks desired and actual state of a set of keyed entries. It stores one full copy (the actual state) and
// the pending changes; the desired state is the one overlaid with the other.
//
// Not safe for concurrent use.
type Tracker[K comparable, V comparable] struct {
	actual  map[K]V
	pending map[K]change[V]
	most    int // of pending at a time, since it was made
	removed int // of pending: entries to be removed
	desired int // entries wanted
}

// keptPending is how many pending changes there may have been at a time for their space to be used again.
const keptPending = 1024

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
	t.put(key, change[V]{value: value})
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
	t.put(key, change[V]{remove: true})
}

// put makes a change the pending one of key.
func (t *Tracker[K, V]) put(key K, c change[V]) {
	was, changes := t.pending[key]
	t.count(was, changes, -1)
	t.count(c, true, 1)
	t.pending[key] = c
	t.most = max(t.most, len(t.pending))
}

// count adds n to the number of pending removals, if a change is one.
func (t *Tracker[K, V]) count(c change[V], changes bool, n int) {
	if changes && c.remove {
		t.removed += n
	}
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
	t.most, t.removed = 0, 0
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
	t.actual, t.pending, t.most, t.removed = read, pending, len(pending), 0
	for _, c := range pending {
		t.count(c, true, 1)
	}
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
// caller's. They are made of the space of two others, whose content is lost, as far as there is enough.
func (t *Tracker[K, V]) PendingSets(most int, keys []K, values []V) ([]K, []V) {
	most = max(0, min(most, len(t.pending)-t.removed))
	keys, values = slices.Grow(keys[:0], most), slices.Grow(values[:0], most)
	if most == 0 { // else it walks through what is to be removed
		return keys, values
	}
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
	most = min(most, t.removed)
	if most <= 0 {
		return nil
	}
	keys := make([]K, 0, most)
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

// clearPending forgets the pending change of key, and after the last the space of all of them if they were many. Plans change some entries
// each, and come one after the other: to make the space for each of them is most of what they allocate.
func (t *Tracker[K, V]) clearPending(key K) {
	was, changes := t.pending[key]
	if !changes {
		return
	}
	t.count(was, true, -1)
	delete(t.pending, key)
	if len(t.pending) == 0 && t.most > keptPending {
		t.pending, t.most = map[K]change[V]{}, 0
	}
}
