package bpfmaps

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
)

// ErrIncompatible says that a pinned map is not what this version of the agent needs.
var ErrIncompatible = errors.New("pinned map has another layout")

// Options say where the maps are and how large.
type Options struct {
	BPFFS    string // mount point of the BPF file system. Open mounts it if it is not
	Instance string // tells agents on one machine apart; may be empty
	// MaxEntries replaces the sizes of hashes, tries and the ring buffer (bytes there), by map name. A pinned map keeps
	// the size it was made with.
	MaxEntries map[string]uint32
}

// Maps are all maps of one instance, grouped by content. The tables write nothing before their Sync.
//
// Not safe for concurrent use, except what the programs write: Flows, Drops, RuleStats and Events.
type Maps struct {
	Addresses *Addresses
	Names     *Names
	ClassSets *Table[bpf.ClassChunk, bpf.SetBits]
	Staged    *Table[uint32, bpf.Staged] // what staged policies would decide, by interface
	Flows     *Flows
	Drops     *Drops
	RuleStats *RuleStats
	Events    *EventRing

	// Kept says which pinned maps keep another size than asked for, in words.
	Kept []string

	dir  string
	spec *ebpf.CollectionSpec
	maps map[string]*ebpf.Map
	made []string // names of maps that were not pinned
	lock *os.File
}

// Open opens the pinned maps of the instance and creates those that are missing. It takes the instance's lock
// (ErrLocked), which Close releases. A pinned map that does not fit is an error (ErrIncompatible): nothing pinned is
// ever replaced, since programs may be using it.
func Open(o Options) (*Maps, error) {
	spec, err := sized(o.MaxEntries)
	if err != nil {
		return nil, err
	}
	if err := Mount(o.BPFFS); err != nil {
		return nil, err
	}
	m := &Maps{dir: layoutDir(o.BPFFS, o.Instance), spec: spec, maps: map[string]*ebpf.Map{}}
	if err := os.MkdirAll(m.dir, 0o700); err != nil {
		return nil, fmt.Errorf("open maps: %w", err)
	}
	if m.lock, err = lock(InstanceDir(o.BPFFS, o.Instance)); errors.Is(err, ErrLocked) {
		return nil, fmt.Errorf("%w: stop it first, or give this one a name of its own with --instance", err)
	} else if err != nil {
		return nil, err
	}
	return m.open(true)
}

// OpenPinned opens the maps of an instance to look at: it creates, mounts and locks nothing. Not to be written to while
// an agent runs. A map that is missing is an error (os.ErrNotExist).
func OpenPinned(o Options) (*Maps, error) {
	spec, err := sized(nil)
	if err != nil {
		return nil, err
	}
	m := &Maps{dir: layoutDir(o.BPFFS, o.Instance), spec: spec, maps: map[string]*ebpf.Map{}}
	return m.open(false)
}

// CheckSizes says which of the sizes cannot be set, and why; nil: all can.
func CheckSizes(entries map[string]uint32) error {
	_, err := sized(entries)
	return err
}

// sized is the specification of all maps and programs, with the sizes wanted.
func sized(entries map[string]uint32) (*ebpf.CollectionSpec, error) {
	spec, err := bpf.LoadMargay()
	if err != nil {
		return nil, fmt.Errorf("read the embedded BPF object: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		ms, size := spec.Maps[name], entries[name]
		switch {
		case ms == nil:
			return nil, fmt.Errorf("--map-size %s=%d: no map has this name; want one of %s", name, size, strings.Join(resizable(spec), ", "))
		case fixedSize(ms.Type):
			return nil, fmt.Errorf("--map-size %s=%d: this map is an array, whose size cannot be set; want one of %s",
				name, size, strings.Join(resizable(spec), ", "))
		case size == 0:
			return nil, fmt.Errorf("--map-size %s=0: want at least 1", name)
		}
		ms.MaxEntries = size
	}
	return spec, nil
}

// resizable are the names of the maps whose sizes can be set, in order.
func resizable(spec *ebpf.CollectionSpec) []string {
	var names []string
	for name, m := range spec.Maps {
		if !fixedSize(m.Type) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// fixedSize says whether programs rely on the size of a map of this type.
func fixedSize(kind ebpf.MapType) bool {
	return kind == ebpf.Array || kind == ebpf.PerCPUArray || kind == ebpf.ArrayOfMaps
}

func (m *Maps) open(create bool) (*Maps, error) {
	var errs []error
	for _, name := range m.names() {
		opened, err := m.openMap(m.spec.Maps[name], name, create)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		m.maps[name] = opened
	}
	if len(errs) > 0 {
		return nil, errors.Join(append(errs, m.Close())...)
	}
	m.Addresses, m.Names = newAddresses(m.maps), newNames(m.maps)
	m.ClassSets = NewTable(newKernelMap[bpf.ClassChunk, bpf.SetBits](m.maps[bpf.MargayMapClassSets], bpf.MargayMapClassSets))
	staged := newKernelMap[uint32, bpf.Staged](m.maps[bpf.MargayMapStaged], bpf.MargayMapStaged)
	staged.flags = ebpf.UpdateLock // programs may read them
	m.Staged = NewTable(staged)
	m.Flows = newFlows(m.maps, m.made)
	m.Drops, m.RuleStats = &Drops{m.maps[bpf.MargayMapDrops]}, &RuleStats{m.maps[bpf.MargayMapRuleStats]}
	m.Events = &EventRing{ring: m.maps[bpf.MargayMapEvents], budgets: m.maps[bpf.MargayMapEventBudgets]}
	return m, nil
}

// names are the names of all pinned maps in order; data sections are not among them, each load has its own.
func (m *Maps) names() []string {
	var names []string
	for name := range m.spec.Maps {
		if !strings.HasPrefix(name, ".") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (m *Maps) openMap(spec *ebpf.MapSpec, name string, create bool) (*ebpf.Map, error) {
	path := filepath.Join(m.dir, name)
	pinned, err := ebpf.LoadPinnedMap(path, nil)
	if err == nil {
		return pinned, m.fit(spec, name, pinned)
	}
	if !create || !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("open map %s: %w", path, err)
	}
	created, err := ebpf.NewMap(spec)
	if err != nil {
		return nil, fmt.Errorf("create map %s of %d entries: %w", name, spec.MaxEntries, err)
	}
	if err := created.Pin(path); err != nil {
		return nil, errors.Join(fmt.Errorf("pin map %s: %w", path, err), created.Close())
	}
	m.made = append(m.made, name)
	return created, nil
}

// fit adapts spec to the size of the pinned map and checks everything else. It closes a map that does not fit.
func (m *Maps) fit(spec *ebpf.MapSpec, name string, pinned *ebpf.Map) error {
	if !fixedSize(spec.Type) {
		if spec.MaxEntries != pinned.MaxEntries() {
			m.Kept = append(m.Kept, fmt.Sprintf("map %s keeps its %d entries, %d were asked for",
				name, pinned.MaxEntries(), spec.MaxEntries))
		}
		spec.MaxEntries = pinned.MaxEntries()
	}
	if err := spec.Compatible(pinned); err != nil {
		return errors.Join(fmt.Errorf("map %s: %w: %w", filepath.Join(m.dir, name), ErrIncompatible, err), pinned.Close())
	}
	return nil
}

// PinFaults names the pins that are missing, or that are other maps than those in use.
func (m *Maps) PinFaults() (faults []string) {
	for _, name := range m.names() {
		pinned, err := ebpf.LoadPinnedMap(filepath.Join(m.dir, name), nil)
		if err != nil {
			faults = append(faults, fmt.Sprintf("map %s: its pin cannot be opened: %v", name, err))
			continue
		}
		if !sameMap(pinned, m.maps[name]) {
			faults = append(faults, fmt.Sprintf("map %s: another map is pinned in its place", name))
		}
		pinned.Close()
	}
	return faults
}

func sameMap(a, b *ebpf.Map) bool {
	infoA, err1 := a.Info()
	infoB, err2 := b.Info()
	if err1 != nil || err2 != nil {
		return false
	}
	idA, ok1 := infoA.ID()
	idB, ok2 := infoB.ID()
	return ok1 && ok2 && idA == idB
}

// Dir is the directory everything is pinned in.
func (m *Maps) Dir() string { return m.dir }

// LinksName is the directory of links within that of a layout.
const LinksName = "links"

// LinkDir is the directory for the pins of links.
func (m *Maps) LinkDir() string { return filepath.Join(m.dir, LinksName) }

// Map is the map of that name (bpf.MargayMap…), or nil. It belongs to m. For tests and dumps; the agent writes through
// the tables.
func (m *Maps) Map(name string) *ebpf.Map { return m.maps[name] }

// MaxEntries is how many entries the map of that name has room for (bytes of the ring buffer); 0: there is no such map.
func (m *Maps) MaxEntries(name string) uint32 {
	if m.maps[name] == nil {
		return 0
	}
	return m.maps[name].MaxEntries()
}

// Close closes all maps and gives the lock back. Pinned state stays.
func (m *Maps) Close() error {
	var errs []error
	for _, opened := range m.maps {
		errs = append(errs, opened.Close())
	}
	if m.lock != nil {
		errs = append(errs, m.lock.Close())
	}
	return errors.Join(errs...)
}

// Remove unpins everything of the layout directory dir, links included: the kernel frees objects that have no other
// user.
func Remove(dir string) error {
	if base := filepath.Base(dir); !strings.HasPrefix(base, "v") {
		return fmt.Errorf("remove %s: not a layout directory", dir)
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove layout: %w", err)
	}
	return nil
}
