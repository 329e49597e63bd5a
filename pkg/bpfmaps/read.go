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
		size := int(min(m.MaxEntries(), batch))
		keys, values := make([]K, size), make([]V, size)
		limit := 4*uint64(m.MaxEntries()) + 16*batch
		var cursor ebpf.MapBatchCursor
		for seen := uint64(0); ; {
			n, err := m.BatchLookup(&cursor, keys, values, nil)
			switch {
			case errors.Is(err, ebpf.ErrNotSupported) && seen == 0:
				readEach(m, yield)
				return
			case errors.Is(err, unix.ENOSPC):
				// One bucket of the hash holds more than fits: more room, same place.
				size *= 2
				keys, values = make([]K, size), make([]V, size)
				continue
			case errors.Is(err, unix.EINTR) && seen < limit:
				// The trie lost its place because entries vanished: from the beginning.
				cursor, seen = ebpf.MapBatchCursor{}, seen+batch
				continue
			}
			last := errors.Is(err, ebpf.ErrKeyNotExist)
			if err != nil && !last {
				yield(entries[K, V]{}, err)
				return
			}
			if n == 0 || !yield(entries[K, V]{keys[:n], values[:n]}, nil) || last {
				return
			}
			if seen += uint64(n); seen > limit {
				yield(entries[K, V]{}, fmt.Errorf("gave up after %d entries: changing too fast", seen))
				return
			}
		}
	}
}

// readEach is readAll for kernels and map types without batches.
func readEach[K, V any](m *ebpf.Map, yield func(entries[K, V], error) bool) {
	keys, values := make([]K, 1), make([]V, 1)
	it := m.Iterate()
	for it.Next(&keys[0], &values[0]) {
		if !yield(entries[K, V]{keys, values}, nil) {
			return
		}
	}
	if err := it.Err(); err != nil {
		yield(entries[K, V]{}, err)
	}
}
