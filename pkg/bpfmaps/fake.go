package bpfmaps

import (
	"maps"
	"slices"

	"golang.org/x/sys/unix"
)

// Fake is a hash map without a kernel, for tests that need no root. Like the kernel's it refuses entries beyond its
// size.
type Fake[K comparable, V comparable] struct {
	MapName string
	Max     int     // entries that fit; 0: any number
	Part    int     // most entries of a part of a Read; 0: any number
	Entries map[K]V // content of the map; a test may change it as another process would
	Writes  int     // entries written or removed so far, failed ones included

	failAt  int
	failErr error
}

// NewFake returns an empty map.
func NewFake[K comparable, V comparable](name string, size int) *Fake[K, V] {
	return &Fake[K, V]{MapName: name, Max: size, Entries: map[K]V{}}
}

// FailNth makes the nth write from now on fail with err, once; n counts from 1.
func (f *Fake[K, V]) FailNth(n int, err error) { f.failAt, f.failErr = f.Writes+n, err }

// Name implements Kernel.
func (f *Fake[K, V]) Name() string { return f.MapName }

// Load implements Kernel.
func (f *Fake[K, V]) Load() (map[K]V, error) { return maps.Clone(f.Entries), nil }

// Read implements Kernel. A part has at most Part entries. An entry that comes meanwhile is not read.
func (f *Fake[K, V]) Read() Reading[K, V] {
	return &fakeRead[K, V]{f, slices.Collect(maps.Keys(f.Entries))}
}

type fakeRead[K comparable, V comparable] struct {
	of   *Fake[K, V]
	keys []K // that are left
}

func (r *fakeRead[K, V]) Next(do func(K, V)) (last bool, err error) {
	n := len(r.keys)
	if r.of.Part > 0 {
		n = min(n, r.of.Part)
	}
	for _, key := range r.keys[:n] {
		if value, ok := r.of.Entries[key]; ok {
			do(key, value)
		}
	}
	r.keys = r.keys[n:]
	return len(r.keys) == 0, nil
}

// Update implements Kernel.
func (f *Fake[K, V]) Update(keys []K, values []V) (int, error) {
	for i, key := range keys {
		if err := f.write(); err != nil {
			return i, err
		}
		if _, ok := f.Entries[key]; !ok && f.Max > 0 && len(f.Entries) >= f.Max {
			return i, unix.E2BIG
		}
		f.Entries[key] = values[i]
	}
	return len(keys), nil
}

// Delete implements Kernel.
func (f *Fake[K, V]) Delete(keys []K) (int, error) {
	for i, key := range keys {
		if err := f.write(); err != nil {
			return i, err
		}
		delete(f.Entries, key)
	}
	return len(keys), nil
}

func (f *Fake[K, V]) write() error {
	if f.Writes++; f.Writes == f.failAt {
		return f.failErr
	}
	return nil
}

// Faulty is a map some of whose writes fail, for tests of code that continues without them.
type Faulty[K comparable, V comparable] struct {
	Kernel[K, V]
	Refuse func(key K, gone bool) error // nil: the write is done
}

// Update implements Kernel.
func (f *Faulty[K, V]) Update(keys []K, values []V) (int, error) {
	return f.each(keys, false, func(i int) error {
		_, err := f.Kernel.Update(keys[i:i+1], values[i:i+1])
		return err
	})
}

// Delete implements Kernel.
func (f *Faulty[K, V]) Delete(keys []K) (int, error) {
	return f.each(keys, true, func(i int) error {
		_, err := f.Kernel.Delete(keys[i : i+1])
		return err
	})
}

func (f *Faulty[K, V]) each(keys []K, gone bool, do func(int) error) (int, error) {
	for i, key := range keys {
		err := f.Refuse(key, gone)
		if err == nil {
			err = do(i)
		}
		if err != nil {
			return i, err
		}
	}
	return len(keys), nil
}

// Interpose puts something between the table and its map: for tests.
func (t *Table[K, V]) Interpose(between func(Kernel[K, V]) Kernel[K, V]) {
	t.kernel = between(t.kernel)
}
