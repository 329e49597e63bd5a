package bpfmaps

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/bpf"
)

// SlotContent is one compiled policy as the maps hold it. Rows are 32 classes a value, RowBlk 32 blocks a value.
type SlotContent struct {
	Shape    bpf.Slot
	Rules    []bpf.Rule
	L4       []bpf.L4Page
	Rows     []bpf.CellBlock
	RowBlk   []bpf.CellBlock
	Cells    []bpf.CellBlock
	Outcomes []bpf.Outcome
}

// part is one of the six arrays of a slot.
type part int

const (
	partRules part = iota
	partL4
	partRows
	partRowBlk
	partCells
	partOutcomes
	parts
)

var partNames = [parts]string{
	bpf.MargayMapRules, bpf.MargayMapL4, bpf.MargayMapRows, bpf.MargayMapRowblk, bpf.MargayMapCells, bpf.MargayMapOutcomes,
}

func (c *SlotContent) sizes() [parts]uint32 {
	return [parts]uint32{
		uint32(len(c.Rules)), uint32(len(c.L4)), uint32(len(c.Rows)), uint32(len(c.RowBlk)), uint32(len(c.Cells)),
		uint32(len(c.Outcomes)),
	}
}

// fill writes one part into an inner array. Rows beyond the content are zeroed: a class without a row is denied.
func (c *SlotContent) fill(p part, inner *ebpf.Map) error {
	switch p {
	case partRules:
		return fill(inner, c.Rules)
	case partL4:
		return fill(inner, c.L4)
	case partRows:
		rows := make([]bpf.CellBlock, inner.MaxEntries())
		copy(rows, c.Rows)
		return fill(inner, rows)
	case partRowBlk:
		return fill(inner, c.RowBlk)
	case partCells:
		return fill(inner, c.Cells)
	default:
		return fill(inner, c.Outcomes)
	}
}

func fill[V any](inner *ebpf.Map, values []V) error {
	if len(values) == 0 {
		return nil
	}
	keys := make([]uint32, len(values))
	for i := range keys {
		keys[i] = uint32(i)
	}
	_, err := inner.BatchUpdate(keys, values, nil)
	return err
}

// errUnpinned says that an array is in use whose pin is missing or is of another, and that we may not open it by its id.
var errUnpinned = errors.New("it is not pinned, and opening maps by id needs CAP_SYS_ADMIN")

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
	if info, err := inner.Info(); err == nil {
		if is, ok := info.ID(); ok && is == id {
			return inner
		}
	}
	inner.Close()
	return nil
}

// newInner creates an inner array that nothing refers to yet.
func (s *Slots) newInner(p part, capacity uint32) (*ebpf.Map, error) {
	spec := *s.template[p]
	spec.MaxEntries = capacity
	inner, err := ebpf.NewMap(&spec)
	if err != nil {
		return nil, fmt.Errorf("create map for %s of %d entries: %w", partNames[p], capacity, err)
	}
	return inner, nil
}

// headroom is the capacity of a new inner array for n values: policies and their classes grow.
func headroom(n uint32) uint32 { return n + n/4 + 2 }

// placement is an inner array to be put into an outer map.
type placement struct {
	content int // index in the list being published
	slot    uint32
	inner   *ebpf.Map
}

// put puts inner arrays into the outer map in one call, since each call waits until no program can be using what was
// there before. If that fails it puts them one by one; failed is called with each that cannot be put.
func (s *Slots) put(p part, list []placement, failed func(content int, err error)) {
	if len(list) == 0 {
		return
	}
	slots, fds := make([]uint32, len(list)), make([]uint32, len(list))
	for i, l := range list {
		slots[i], fds[i] = l.slot, uint32(l.inner.FD())
	}
	_, err := s.outer[p].BatchUpdate(slots, fds, nil)
	for i, l := range list {
		if err != nil {
			if one := s.outer[p].Update(&slots[i], &fds[i], ebpf.UpdateAny); one != nil {
				failed(l.content, fmt.Errorf("write map %s key %d: %w", partNames[p], l.slot, one))
				continue
			}
		}
		s.places[l.slot].capacity[p] = l.inner.MaxEntries()
	}
}

// pinAll pins the arrays that have been put into the outer maps.
func (s *Slots) pinAll(created [parts][]placement, errs []error) error {
	var failed []error
	for p := range parts {
		for _, l := range created[p] {
			if errs[l.content] == nil {
				failed = append(failed, s.pin(p, l.slot, l.inner))
			}
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
