package bpfmaps

import (
	"errors"
	"fmt"
	"iter"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// entries is a part of a map's contents; the slices are parallel and valid until the next part.
type entries[K, V any] struct {
	keys   []K
	values []V
}

// readAll yields a map's contents part by part, until an error. Entries that exist all the time are yielded; ones that
// come or go meanwhile may be or not; in a map that changes fast, some may be yielded twice. It ends in any case.
func readAll[K, V any](m *ebpf.Map) iter.Seq2[entries[K, V], error] {
	return func(yield func(entries[K, V], error) bool) {
		r := newReading[K, V](m)
		for last := false; !last; {
			var part entries[K, V]
			var err error
			part, last, err = r.next()
			if (err != nil || len(part.keys) > 0) && !yield(part, err) || err != nil {
				return
			}
		}
	}
}

// reading is a reading of a map's contents part by part: see readAll. The map may be written between two parts.
type reading[K, V any] struct {
	m           *ebpf.Map
	part        entries[K, V] // space
	cursor      ebpf.MapBatchCursor
	seen, limit uint64
}

func newReading[K, V any](m *ebpf.Map) *reading[K, V] {
	r := &reading[K, V]{m: m, limit: 4*uint64(m.MaxEntries()) + 16*batch}
	r.room(int(min(m.MaxEntries(), batch)))
	return r
}

// room makes parts of so many entries.
func (r *reading[K, V]) room(n int) { r.part = entries[K, V]{make([]K, n), make([]V, n)} }

// next returns the next part, which may be empty. last: there are no more; do not call next again then, nor after an error.
func (r *reading[K, V]) next() (part entries[K, V], last bool, err error) {
	for {
		n, err := r.m.BatchLookup(&r.cursor, r.part.keys, r.part.values, nil)
		switch {
		case errors.Is(err, ebpf.ErrNotSupported) && r.seen == 0:
			part, err = readEach[K, V](r.m)
			return part, true, err
		case errors.Is(err, unix.ENOSPC):
			// One bucket of the hash holds more than fits: more room, same place.
			r.room(2 * len(r.part.keys))
			continue
		case errors.Is(err, unix.EINTR) && r.seen < r.limit:
			// The trie lost its place because entries vanished: from the beginning.
			r.cursor, r.seen = ebpf.MapBatchCursor{}, r.seen+batch
			continue
		}
		last := errors.Is(err, ebpf.ErrKeyNotExist)
		if err != nil && !last {
			return entries[K, V]{}, true, err
		}
		last = last || n == 0
		if r.seen += uint64(n); r.seen > r.limit && !last {
			return entries[K, V]{}, true, fmt.Errorf("gave up after %d entries: changing too fast", r.seen)
		}
		return entries[K, V]{r.part.keys[:n], r.part.values[:n]}, last, nil
	}
}

// readEach reads a map's contents on kernels and of map types without batches.
func readEach[K, V any](m *ebpf.Map) (all entries[K, V], err error) {
	var key K
	var value V
	it := m.Iterate()
	for it.Next(&key, &value) {
		all.keys, all.values = append(all.keys, key), append(all.values, value)
	}
	return all, it.Err()
}
