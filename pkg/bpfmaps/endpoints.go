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
// one aligned store and no system call. An endpoint whose place in the array (ifindex & 0xffff) is taken has one of the
// further places behind those, to which its entry of the hash endpoint_places leads.
//
// There must be one writer only. It is not safe for concurrent use.
type Endpoints struct {
	memory     []byte
	places     []bpf.Endpoint    // backed by memory
	taken      map[uint32]uint32 // place -> ifindex
	further    map[uint32]uint32 // ifindex -> place: content of endpoint_places
	next       uint32            // of the further places: where to look for a free one
	hash       *ebpf.Map
	neighbours *ebpf.Map
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
		memory:     memory,
		places:     unsafe.Slice((*bpf.Endpoint)(unsafe.Pointer(&memory[0])), array.MaxEntries()),
		hash:       m.maps[bpf.MargayMapEndpointPlaces],
		neighbours: m.maps[bpf.MargayMapNeighbours],
	}
	if err := e.Reload(); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// Reload reads the maps again; List then shows changes by others.
func (e *Endpoints) Reload() error {
	further, err := e.loadFurther()
	if err != nil {
		return err
	}
	e.further, e.taken = further, map[uint32]uint32{}
	for i := range bpf.Endpoints {
		if ifindex := e.owner(i); ifindex != 0 {
			e.taken[i] = ifindex
		}
	}
	for ifindex, place := range further {
		if e.leadsTo(ifindex, place) {
			e.taken[place] = ifindex
		}
	}
	return nil
}

func (e *Endpoints) loadFurther() (map[uint32]uint32, error) {
	further, err := newKernelMap[uint32, uint32](e.hash, bpf.MargayMapEndpointPlaces).Load()
	if err != nil {
		return nil, fmt.Errorf("read map %s: %w", bpf.MargayMapEndpointPlaces, err)
	}
	return further, nil
}

// owner is the ifindex in a place now; 0: none.
func (e *Endpoints) owner(place uint32) uint32 { return atomic.LoadUint32(&e.places[place].Ifindex) }

// leadsTo reports whether programs find an interface by an entry of endpoint_places: its place is a further one and its own. An agent that
// was killed may have left entries of which that is not so.
func (e *Endpoints) leadsTo(ifindex, place uint32) bool {
	return place >= bpf.Endpoints && place < uint32(len(e.places)) && ifindex != 0 && e.owner(place) == ifindex
}

// List returns all endpoints, by ifindex.
func (e *Endpoints) List() []bpf.Endpoint {
	list := make([]bpf.Endpoint, 0, len(e.taken))
	for place := range e.taken {
		list = append(list, load(&e.places[place]))
	}
	slices.SortFunc(list, func(a, b bpf.Endpoint) int { return int(int64(a.Ifindex) - int64(b.Ifindex)) })
	return list
}

// Get is the endpoint of that ifindex; false: there is none.
func (e *Endpoints) Get(ifindex uint32) (bpf.Endpoint, bool) {
	if place, ok := e.place(ifindex); ok {
		return load(&e.places[place]), true
	}
	return bpf.Endpoint{}, false
}

// place is where the endpoint of an ifindex is; false: there is none.
func (e *Endpoints) place(ifindex uint32) (place uint32, ok bool) {
	if ifindex == 0 {
		return 0, false
	}
	if place = ifindex % bpf.Endpoints; e.taken[place] == ifindex {
		return place, true
	}
	place, ok = e.further[ifindex]
	return place, ok && e.taken[place] == ifindex
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
	place, ok := e.place(ep.Ifindex)
	if !ok {
		return e.create(ep)
	}
	was := load(&e.places[place])
	carryOut(&e.places[place], alteration(was, ep))
	if none := [6]byte{}; was.Mac == none && ep.Mac != none {
		return e.forgetNeighbour(place)
	}
	return nil
}

// create creates an endpoint. One in a further place is found from the moment its entry of endpoint_places is written.
func (e *Endpoints) create(ep bpf.Endpoint) error {
	if _, stale := e.further[ep.Ifindex]; stale { // it would lead to somebody else's record of neighbour discovery
		if err := e.dropFurther(ep.Ifindex); err != nil {
			return err
		}
	}
	place, err := e.choose(ep.Ifindex)
	if err != nil {
		return err
	}
	if err := e.forgetNeighbour(place); err != nil {
		return err
	}
	carryOut(&e.places[place], creation(load(&e.places[place]), ep))
	if place >= bpf.Endpoints {
		if err := e.hash.Update(&ep.Ifindex, &place, ebpf.UpdateAny); err != nil {
			carryOut(&e.places[place], removal(load(&e.places[place])))
			return fmt.Errorf("write map %s key %d: %w", bpf.MargayMapEndpointPlaces, ep.Ifindex, err)
		}
		e.further[ep.Ifindex] = place
	}
	e.taken[place] = ep.Ifindex
	return nil
}

// choose returns a place for a new endpoint. A further place is used again as late as possible: a packet may still be in a program that
// has found the endpoint which was there.
func (e *Endpoints) choose(ifindex uint32) (place uint32, err error) {
	place = ifindex % bpf.Endpoints
	if _, taken := e.taken[place]; !taken {
		return place, nil
	}
	if err := e.dropStale(); err != nil {
		return 0, err
	}
	for range bpf.FurtherEndpoints {
		place = bpf.Endpoints + e.next%bpf.FurtherEndpoints
		e.next++
		if _, taken := e.taken[place]; !taken {
			return place, nil
		}
	}
	return 0, fmt.Errorf("write map %s: no place for interface %d: its own is taken, and so are all %d further ones", bpf.MargayMapEndpoints, ifindex, bpf.FurtherEndpoints)
}

// dropStale removes entries of endpoint_places that lead nowhere. They would take the room of others.
func (e *Endpoints) dropStale() error {
	for ifindex, place := range e.further {
		if e.taken[place] == ifindex {
			continue
		}
		if err := e.dropFurther(ifindex); err != nil {
			return err
		}
	}
	return nil
}

func (e *Endpoints) dropFurther(ifindex uint32) error {
	if err := e.hash.Delete(&ifindex); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("delete map %s key %d: %w", bpf.MargayMapEndpointPlaces, ifindex, err)
	}
	delete(e.further, ifindex)
	return nil
}

// forgetNeighbour empties what is known of the neighbour discovery of the interface that has a place.
func (e *Endpoints) forgetNeighbour(place uint32) error {
	if err := e.neighbours.Update(&place, &bpf.MargayNeighbour{}, ebpf.UpdateAny); err != nil {
		return fmt.Errorf("write map %s key %d: %w", bpf.MargayMapNeighbours, place, err)
	}
	return nil
}

// Remove removes the endpoint: from here on nothing passes. That there is none is no error.
func (e *Endpoints) Remove(ifindex uint32) error {
	place, ok := e.place(ifindex)
	if !ok {
		return nil
	}
	carryOut(&e.places[place], removal(load(&e.places[place])))
	delete(e.taken, place)
	if place < bpf.Endpoints {
		return nil
	}
	return e.dropFurther(ifindex)
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
func (e *Endpoints) Len() int { return len(e.taken) }

// Foreign are the interfaces of entries in the maps now that this process has not made.
func (e *Endpoints) Foreign() ([]uint32, error) {
	further, err := e.loadFurther()
	if err != nil {
		return nil, err
	}
	var foreign []uint32
	for i := range bpf.Endpoints {
		if ifindex := e.owner(i); ifindex != 0 && e.taken[i] != ifindex {
			foreign = append(foreign, ifindex)
		}
	}
	for ifindex, place := range further {
		if e.leadsTo(ifindex, place) && e.taken[place] != ifindex {
			foreign = append(foreign, ifindex)
		}
	}
	return foreign, nil
}
