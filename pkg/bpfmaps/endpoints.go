package bpfmaps

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/bpf"
)

// endpointSize is the size of one entry, and of its place in the array.
const endpointSize = int(unsafe.Sizeof(bpf.Endpoint{}))

// PolicyWord is the value of an endpoint's ingress or egress: the policy in slot, published as generation.
func PolicyWord(slot, generation uint32) uint64 { return uint64(slot)<<32 | uint64(generation) }

// SplitPolicyWord is the reverse of PolicyWord.
func SplitPolicyWord(word uint64) (slot, generation uint32) { return uint32(word >> 32), uint32(word) }

// Endpoints are the local endpoints by ifindex. The array is mapped into memory: an endpoint's policy is published by
// one aligned store and no system call. An endpoint whose place in the array (ifindex & 0xffff) is taken is in the
// hash endpoints_more instead, where every change replaces the whole entry at once.
//
// There must be one writer only. It is not safe for concurrent use.
type Endpoints struct {
	memory []byte
	places []bpf.Endpoint          // backed by memory
	taken  map[uint32]uint32       // place -> ifindex
	more   map[uint32]bpf.Endpoint // content of endpoints_more
	hash   *ebpf.Map

	neighbours, neighboursMore *ebpf.Map
}

// OpenEndpoints maps the array and reads its entries. Close it before m.
func (m *Maps) OpenEndpoints() (*Endpoints, error) {
	array := m.maps[bpf.MargayMapEndpoints]
	size := int(array.MaxEntries()) * endpointSize
	page := os.Getpagesize()
	memory, err := unix.Mmap(array.FD(), 0, (size+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s into memory: %w", bpf.MargayMapEndpoints, err)
	}
	e := &Endpoints{
		memory: memory,
		places: unsafe.Slice((*bpf.Endpoint)(unsafe.Pointer(&memory[0])), array.MaxEntries()),
		hash:   m.maps[bpf.MargayMapEndpointsMore],

		neighbours: m.maps[bpf.MargayMapNeighbours], neighboursMore: m.maps[bpf.MargayMapNeighboursMore],
	}
	if err := e.Reload(); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// Reload reads the maps again; List then shows changes by others.
func (e *Endpoints) Reload() error {
	more, err := newKernelMap[uint32, bpf.Endpoint](e.hash, bpf.MargayMapEndpointsMore).Load()
	if err != nil {
		return fmt.Errorf("read map %s: %w", bpf.MargayMapEndpointsMore, err)
	}
	e.more, e.taken = more, map[uint32]uint32{}
	for i := range e.places {
		if ifindex := atomic.LoadUint32(&e.places[i].Ifindex); ifindex != 0 {
			e.taken[uint32(i)] = ifindex
		}
	}
	return nil
}

// List returns all endpoints, by ifindex.
func (e *Endpoints) List() []bpf.Endpoint {
	list := make([]bpf.Endpoint, 0, len(e.taken)+len(e.more))
	for i := range e.taken {
		list = append(list, load(&e.places[i]))
	}
	for _, ep := range e.more {
		list = append(list, ep)
	}
	slices.SortFunc(list, func(a, b bpf.Endpoint) int { return int(int64(a.Ifindex) - int64(b.Ifindex)) })
	return list
}

// Get is the endpoint of that ifindex; false: there is none.
func (e *Endpoints) Get(ifindex uint32) (bpf.Endpoint, bool) {
	if p := e.place(ifindex); p != nil {
		return load(p), true
	}
	ep, ok := e.more[ifindex]
	return ep, ok
}

// place is the array's entry of ifindex, or nil if it has none there.
func (e *Endpoints) place(ifindex uint32) *bpf.Endpoint {
	i := ifindex % uint32(len(e.places))
	if ifindex == 0 || e.taken[i] != ifindex {
		return nil
	}
	return &e.places[i]
}

// Set creates or changes the endpoint ep.Ifindex. While it is created nothing passes; EP_READY comes last, and goes
// first. A change is made word by word in an order in which programs see a state that is at most more narrow than the
// old and the new one: no packet that both allow is lost.
//
// The link-local address that an interface has claimed is forgotten before its endpoint is created, since it was another pod's, and when
// the pod's MAC becomes known, since it may be that of the MAC.
func (e *Endpoints) Set(ep bpf.Endpoint) error {
	if ep.Ifindex == 0 {
		return errors.New("endpoint with ifindex 0")
	}
	was, ok := e.Get(ep.Ifindex)
	if !ok {
		if err := e.forgetNeighbour(ep.Ifindex); err != nil {
			return err
		}
	}
	if err := e.set(ep); err != nil {
		return err
	}
	if none := [6]byte{}; ok && was.Mac == none && ep.Mac != none {
		return e.forgetNeighbour(ep.Ifindex)
	}
	return nil
}

// forgetNeighbour empties what is known of an interface's neighbour discovery. An endpoint of the hash gets an entry of its own for that: the one of
// its place is another interface's.
func (e *Endpoints) forgetNeighbour(ifindex uint32) error {
	place := ifindex % uint32(len(e.places))
	if _, inMore := e.more[ifindex]; inMore || e.isOthers(place, ifindex) {
		if err := e.neighboursMore.Update(&ifindex, &bpf.MargayNeighbour{}, ebpf.UpdateAny); err != nil {
			return fmt.Errorf("write map %s key %d: %w", bpf.MargayMapNeighboursMore, ifindex, err)
		}
		return nil
	}
	if err := e.neighbours.Update(&place, &bpf.MargayNeighbour{}, ebpf.UpdateAny); err != nil {
		return fmt.Errorf("write map %s key %d: %w", bpf.MargayMapNeighbours, place, err)
	}
	return nil
}

// isOthers reports whether a place in the array is taken by another interface.
func (e *Endpoints) isOthers(place, ifindex uint32) bool {
	owner, taken := e.taken[place]
	return taken && owner != ifindex
}

func (e *Endpoints) set(ep bpf.Endpoint) error {
	if p := e.place(ep.Ifindex); p != nil {
		carryOut(p, alteration(load(p), ep))
		return nil
	}
	_, inMore := e.more[ep.Ifindex]
	i := ep.Ifindex % uint32(len(e.places))
	if e.isOthers(i, ep.Ifindex) || inMore {
		return e.setMore(ep)
	}
	carryOut(&e.places[i], creation(load(&e.places[i]), ep))
	e.taken[i] = ep.Ifindex
	return nil
}

func (e *Endpoints) setMore(ep bpf.Endpoint) error {
	if err := e.hash.Update(&ep.Ifindex, &ep, ebpf.UpdateAny); err != nil {
		return fmt.Errorf("write map %s key %d: %w", bpf.MargayMapEndpointsMore, ep.Ifindex, err)
	}
	e.more[ep.Ifindex] = ep
	return nil
}

// Remove removes the endpoint: from here on nothing passes. That there is none is no error.
func (e *Endpoints) Remove(ifindex uint32) error {
	if p := e.place(ifindex); p != nil {
		carryOut(p, removal(load(p)))
		delete(e.taken, ifindex%uint32(len(e.places)))
		return nil
	}
	if _, ok := e.more[ifindex]; !ok {
		return nil
	}
	if err := e.hash.Delete(&ifindex); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("delete map %s key %d: %w", bpf.MargayMapEndpointsMore, ifindex, err)
	}
	delete(e.more, ifindex)
	if err := e.neighboursMore.Delete(&ifindex); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("delete map %s key %d: %w", bpf.MargayMapNeighboursMore, ifindex, err)
	}
	return nil
}

// Close unmaps the array.
func (e *Endpoints) Close() error {
	if e.memory == nil {
		return nil
	}
	err := unix.Munmap(e.memory)
	e.memory, e.places = nil, nil
	if err != nil {
		return fmt.Errorf("unmap %s: %w", bpf.MargayMapEndpoints, err)
	}
	return nil
}

// Len is the number of endpoints. For the loop that owns them.
func (e *Endpoints) Len() int { return len(e.taken) + len(e.more) }

// Foreign are the interfaces of entries in the maps now that this process has not made.
func (e *Endpoints) Foreign() ([]uint32, error) {
	more, err := newKernelMap[uint32, bpf.Endpoint](e.hash, bpf.MargayMapEndpointsMore).Load()
	if err != nil {
		return nil, fmt.Errorf("read map %s: %w", bpf.MargayMapEndpointsMore, err)
	}
	var foreign []uint32
	for i := range e.places {
		if ifindex := atomic.LoadUint32(&e.places[i].Ifindex); ifindex != 0 && e.taken[uint32(i)] != ifindex {
			foreign = append(foreign, ifindex)
		}
	}
	for ifindex := range more {
		if _, ok := e.more[ifindex]; !ok {
			foreign = append(foreign, ifindex)
		}
	}
	return foreign, nil
}
