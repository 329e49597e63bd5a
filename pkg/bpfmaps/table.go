package bpfmaps

import (
	"errors"
	"fmt"
	"iter"
	"math"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/delta"
)

// batch is the number of entries handed to the kernel at once.
const batch = 4096

// keptSpace is the number of entries to be written whose space a Table keeps.
const keptSpace = 1024

const (
	// giveUp is the number of writes in a row after whose failure a Sync leaves the rest for the next one: a map that is
	// full or a kernel without memory refuses them all. Fewer may concern one entry's owner only, and the others follow.
	giveUp = 1024
	// mostCauses is the number of failed writes that an error names.
	mostCauses = 16
)

// Kernel is the part of a kernel map that a Table needs. Fake implements it without a kernel.
type Kernel[K comparable, V comparable] interface {
	// Name is the map's name, for errors.
	Name() string
	// Load reads all entries. The result is the caller's.
	Load() (map[K]V, error)
	// Read begins a reading of all entries.
	Read() Reading[K, V]
	// Update writes entries in their order and returns how many it wrote; fewer than all only with an error.
	Update(keys []K, values []V) (int, error)
	// Delete removes entries in their order and returns how many are gone now; fewer than all only with an error. That
	// there is no such entry is no error.
	Delete(keys []K) (int, error)
}

// Reading is a reading of all entries of a map, in parts. The map may be written meanwhile: entries that come, go or change then may be read or
// not, and some are perhaps read twice.
type Reading[K comparable, V comparable] interface {
	// Next calls do for each entry of the next part, some thousand at most. last: it was the last one, also after an error.
	Next(do func(K, V)) (last bool, err error)
}

// Table is a typed table over one kernel map. Set and Delete record intent, Sync writes. One copy of the entries is
// kept in memory.
//
// Not safe for concurrent use.
type Table[K comparable, V comparable] struct {
	kernel Kernel[K, V]
	state  *delta.Tracker[K, V]
	reread bool
	check  *check[K, V] // by ResyncSome, under way; nil: none is
	// Space for what is written. Plans write some entries each, and come one after the other.
	keys   []K
	values []V
}

// NewTable returns a table without desired entries. Its first Sync reads the map, and removes entries that were not Set by
// then.
func NewTable[K comparable, V comparable](kernel Kernel[K, V]) *Table[K, V] {
	return &Table[K, V]{kernel: kernel, state: delta.New[K, V](), reread: true}
}

// Name is the map's name.
func (t *Table[K, V]) Name() string { return t.kernel.Name() }

// Set records that key shall have the value.
func (t *Table[K, V]) Set(key K, value V) { t.state.Set(key, value) }

// Delete records that key shall have no entry.
func (t *Table[K, V]) Delete(key K) { t.state.Delete(key) }

// Get is the value that key shall have; false: none.
func (t *Table[K, V]) Get(key K) (V, bool) { return t.state.Desired(key) }

// Len is the number of entries that shall be in the map.
func (t *Table[K, V]) Len() int { return t.state.Len() }

// All yields the entries that shall be in the map, in no particular order. The table must not be changed meanwhile.
func (t *Table[K, V]) All() iter.Seq2[K, V] { return t.state.All() }

// Pending is the number of writes that remain to be made, as far as known.
func (t *Table[K, V]) Pending() int { return t.state.Pending() }

// Unwritten are the keys whose last change has not been written, in no particular order. The slice is the caller's.
func (t *Table[K, V]) Unwritten() []K {
	keys, _ := t.state.PendingSets(math.MaxInt, nil, nil)
	return append(keys, t.state.PendingDeletes(math.MaxInt)...)
}

// IsUnwritten reports whether key's last change has not been written.
func (t *Table[K, V]) IsUnwritten(key K) bool { return t.state.IsPending(key) }

// Believed is what the map has for the key, as far as is known; false: no entry.
func (t *Table[K, V]) Believed(key K) (V, bool) { return t.state.Believed(key) }

// Load returns the present content of the map. It changes nothing.
func (t *Table[K, V]) Load() (map[K]V, error) {
	entries, err := t.kernel.Load()
	if err != nil {
		return nil, fmt.Errorf("read map %s: %w", t.kernel.Name(), err)
	}
	return entries, nil
}

// Adopt reads the map and makes its content the desired entries, whatever was Set before: an agent that starts
// continues from the state an earlier one left. After an error the table is as before.
func (t *Table[K, V]) Adopt() error {
	entries, err := t.Load()
	if err != nil {
		return err
	}
	t.state.Adopt(entries)
	t.reread, t.check = false, nil
	return nil
}

// Resync reads the map again and returns what somebody else has changed in it since it was last read or written. The
// next Sync repairs that. On the first call for a table, everything in the map that was never Set counts as foreign.
func (t *Table[K, V]) Resync() (delta.Repairs[K], error) {
	if t.asBelieved() {
		t.reread, t.check = false, nil
		return delta.Repairs[K]{}, nil
	}
	return t.reload()
}

// reload is Resync of a map that is not as believed.
func (t *Table[K, V]) reload() (delta.Repairs[K], error) {
	t.check = nil
	entries, err := t.Load()
	if err != nil {
		t.reread = true
		return delta.Repairs[K]{}, err
	}
	t.reread = false
	return t.state.SetActual(entries), nil
}

// asBelieved reports whether the map is unchanged since it was last read or written. That is the usual case, and the
// check takes less than half of the time of a Load.
func (t *Table[K, V]) asBelieved() bool {
	n, same, reading := 0, true, t.kernel.Read()
	for last := false; !last && same; {
		var err error
		last, err = reading.Next(func(key K, value V) {
			have, ok := t.state.Believed(key)
			n++
			same = same && ok && have == value
		})
		if err != nil {
			return false
		}
	}
	return same && n == t.state.Actual()
}

// Sync makes the map equal to the desired entries, with as few writes as possible: first the entries that are new or
// changed, then the removals, so that a prefix may be replaced by longer ones without a gap. A failed change stays pending;
// the error names the map and the keys (errors.Is finds the errno). Sync again to retry.
func (t *Table[K, V]) Sync() error { return t.SyncSome(math.MaxInt) }

// SyncSome is Sync, but leaves all but so many writes, and so many removals, for later.
func (t *Table[K, V]) SyncSome(most int) error {
	if t.reread {
		if _, err := t.Resync(); err != nil {
			return err
		}
	}
	setErr := t.sets(most)
	deletes := t.state.PendingDeletes(most)
	deleteErr := t.deletes(deletes)
	// A full map may have room now that the removals are made.
	if errors.Is(setErr, unix.E2BIG) && len(deletes) > 0 {
		setErr = t.sets(most)
	}
	return errors.Join(setErr, deleteErr)
}

func (t *Table[K, V]) sets(most int) error {
	keys, values := t.state.PendingSets(most, t.keys, t.values)
	if len(keys) <= keptSpace {
		t.keys, t.values = keys, values
	}
	return inBatches(len(keys), func(from, to int) (int, error) {
		n, err := t.kernel.Update(keys[from:to], values[from:to])
		return t.written(keys[from:to], n, "write", err)
	})
}

func (t *Table[K, V]) deletes(keys []K) error {
	return inBatches(len(keys), func(from, to int) (int, error) {
		n, err := t.kernel.Delete(keys[from:to])
		return t.written(keys[from:to], n, "delete", err)
	})
}

// written records n entries written, and names the entry the error is about: the one after them.
func (t *Table[K, V]) written(keys []K, n int, verb string, err error) (int, error) {
	for _, key := range keys[:n] {
		t.state.Written(key)
	}
	if t.check != nil {
		t.check.note(keys) // of one that failed it is not known what the map has
	}
	if err == nil {
		return n, nil
	}
	return n, fmt.Errorf("%s map %s key %s: %w", verb, t.kernel.Name(), text(keys[n]), err)
}

// inBatches calls do for consecutive parts of 0..total, skips each entry at which do failed, and joins the errors.
func inBatches(total int, do func(from, to int) (int, error)) error {
	var errs []error
	failed, inRow := 0, 0
	for from := 0; from < total && inRow < giveUp; {
		n, err := do(from, min(from+batch, total))
		if from += n; n > 0 {
			inRow = 0
		}
		if err == nil {
			continue
		}
		failed, inRow = failed+1, inRow+1
		if len(errs) < mostCauses {
			errs = append(errs, err)
		}
		if from++; inRow == giveUp {
			failed += total - from
		}
	}
	if failed > len(errs) {
		errs = append(errs, fmt.Errorf("and %d more", failed-len(errs)))
	}
	return errors.Join(errs...)
}

// kernelMap is the real Kernel.
type kernelMap[K comparable, V comparable] struct {
	m     *ebpf.Map
	name  string
	flags ebpf.MapUpdateFlags // of each write
}

func newKernelMap[K comparable, V comparable](m *ebpf.Map, name string) *kernelMap[K, V] {
	return &kernelMap[K, V]{m: m, name: name}
}

func (k *kernelMap[K, V]) Name() string { return k.name }

func (k *kernelMap[K, V]) Load() (map[K]V, error) {
	entries := map[K]V{}
	for part, err := range readAll[K, V](k.m) {
		if err != nil {
			return nil, err
		}
		for i, key := range part.keys {
			entries[key] = part.values[i]
		}
	}
	return entries, nil
}

func (k *kernelMap[K, V]) Read() Reading[K, V] { return partsOf[K, V]{newReading[K, V](k.m)} }

// partsOf is a reading of a kernelMap.
type partsOf[K comparable, V comparable] struct{ *reading[K, V] }

func (p partsOf[K, V]) Next(do func(K, V)) (last bool, err error) {
	part, last, err := p.next()
	for i, key := range part.keys {
		do(key, part.values[i])
	}
	return last, err
}

func (k *kernelMap[K, V]) Update(keys []K, values []V) (int, error) {
	if len(keys) > 1 {
		n, err := k.m.BatchUpdate(keys, values, &ebpf.BatchOptions{ElemFlags: uint64(k.flags)})
		if err == nil {
			return len(keys), nil
		}
		// The number of written entries is reliable only if it is fewer than all: the kernel does not always report it.
		// Writing an entry twice does no harm, so continue one by one, to find the entry that fails and its error.
		if n >= len(keys) {
			n = 0
		}
		rest, err := k.updateEach(keys[n:], values[n:])
		return n + rest, err
	}
	return k.updateEach(keys, values)
}

func (k *kernelMap[K, V]) updateEach(keys []K, values []V) (int, error) {
	for i := range keys {
		if err := k.m.Update(&keys[i], &values[i], k.flags); err != nil {
			return i, err
		}
	}
	return len(keys), nil
}

func (k *kernelMap[K, V]) Delete(keys []K) (int, error) {
	n := 0
	if len(keys) > 1 {
		done, err := k.m.BatchDelete(keys, nil)
		if err == nil {
			return len(keys), nil
		}
		if done < len(keys) {
			n = done
		}
	}
	for ; n < len(keys); n++ {
		if err := k.m.Delete(&keys[n]); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return n, err
		}
	}
	return n, nil
}
