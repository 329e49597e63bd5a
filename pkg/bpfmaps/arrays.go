package bpfmaps

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/bpfroom"
)

// arrays makes, finds and places the arrays of slots. They are the inner maps of six arrays of maps, one for each part.
type arrays struct {
	dir      string // of the maps' pins
	outer    [parts]*ebpf.Map
	template [parts]*ebpf.MapSpec
	calls    calls
}

// newArrays returns the arrays of these maps.
func newArrays(m *Maps) *arrays {
	a := &arrays{dir: m.dir, calls: newCalls()}
	for p, name := range partNames {
		a.outer[p] = m.maps[name]
		a.template[p] = m.spec.Maps[name].InnerMap.Copy()
		a.template[p].Name = name
	}
	return a
}

// errUnpinned says that an array is in use whose pin is missing or is of another, and that we may not open it by its id.
var errUnpinned = errors.New("it is not pinned, and opening maps by id needs CAP_SYS_ADMIN")

// open opens the array of a slot, see openInner.
func (a *arrays) open(p part, slot uint32) (*ebpf.Map, error) {
	return openInner(a.dir, a.outer[p], p, slot)
}

// openInner opens the inner array of a slot by its pin in dir; by its id, which takes a capability that nothing else
// here does, only if that is not its pin. ebpf.ErrKeyNotExist: there is none. errUnpinned: out of reach.
func openInner(dir string, outer *ebpf.Map, p part, slot uint32) (*ebpf.Map, error) {
	var id uint32
	if err := outer.Lookup(&slot, &id); err != nil {
		return nil, fmt.Errorf("read map %s key %d: %w", partNames[p], slot, err)
	}
	if inner := openPin(filepath.Join(slotDir(dir, slot), partNames[p]), ebpf.MapID(id)); inner != nil {
		return inner, nil
	}
	inner, err := ebpf.NewMapFromID(ebpf.MapID(id))
	if errors.Is(err, unix.EPERM) {
		err = errUnpinned
	}
	if err != nil {
		return nil, fmt.Errorf("open what map %s key %d refers to: %w", partNames[p], slot, err)
	}
	return inner, nil
}

// openPin opens a pinned map if it is the one with this id, and else returns nil.
func openPin(path string, id ebpf.MapID) *ebpf.Map {
	inner, err := ebpf.LoadPinnedMap(path, nil)
	if err != nil {
		return nil
	}
	if is, err := idOf(inner); err == nil && is == id {
		return inner
	}
	inner.Close()
	return nil
}

// create creates an array that nothing refers to yet.
func (a *arrays) create(p part, capacity uint32) (*ebpf.Map, error) {
	spec := *a.template[p]
	spec.MaxEntries = capacity
	inner, err := ebpf.NewMap(&spec)
	if err != nil {
		return nil, fmt.Errorf("create map for %s of %d entries: %w", partNames[p], capacity, bpfroom.Explain(err))
	}
	return inner, nil
}

// headroom is the capacity of a new array for n values: policies and their classes grow.
func headroom(n uint32) uint32 { return n + n/4 + 2 }

// bytes is the size of arrays of these capacities.
func (a *arrays) bytes(capacity [parts]uint32) uint64 {
	sum := uint64(0)
	for p, n := range capacity {
		sum += uint64(n) * uint64(a.template[p].ValueSize)
	}
	return sum
}

// placement is an array to be put into an outer map.
type placement struct {
	content int // index in the list being published
	part    part
	slot    uint32
	inner   *ebpf.Map
}

// put puts arrays into the outer maps and returns those that it could put; the errors are by content. When it returns,
// programs find the new arrays. A packet that is still in a program may use the old ones.
func (a *arrays) put(list []placement, errs []error) (done []placement) {
	var byPart [parts][]placement
	for _, l := range list {
		byPart[l.part] = append(byPart[l.part], l)
	}
	var begun [parts]*call
	for p, some := range byPart {
		if len(some) > 0 {
			begun[p] = a.calls.begin(a.outer[p], some)
		}
	}
	for p, some := range byPart {
		if len(some) == 0 {
			continue
		}
		failed := begun[p].inEffect()
		for _, l := range some {
			if failed != nil { // one by one: it may be the fault of a single one
				if err := a.outer[p].Update(l.slot, uint32(l.inner.FD()), ebpf.UpdateAny); err != nil {
					errs[l.content] = errors.Join(errs[l.content], fmt.Errorf("write map %s key %d: %w", partNames[p], l.slot, err))
					continue
				}
			}
			done = append(done, l)
		}
	}
	return done
}

// pinAll pins arrays that have been put, of contents without an error.
func (a *arrays) pinAll(list []placement, errs []error) error {
	var failed []error
	for _, l := range list {
		if errs[l.content] == nil {
			failed = append(failed, a.pin(l.part, l.slot, l.inner))
		}
	}
	return errors.Join(failed...)
}

func closeAll(list []placement) error {
	var errs []error
	for _, l := range list {
		errs = append(errs, l.inner.Close())
	}
	return errors.Join(errs...)
}
