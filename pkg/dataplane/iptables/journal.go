package iptables

import (
	"math"
	"net/netip"
	"sync/atomic"

	"github.com/margay-project/margay/pkg/model"
)

// journal notes when this agent last wrote each part of the kernel's state, so that verification knows whether a part has changed
// since it was read. Times are counts of writes; a reading has the time at which it began. Only the dataplane's goroutine may use
// it, but for clock and verifying.
type journal struct {
	clock     atomic.Uint64
	slots     map[uint32]uint64           // when chains of a slot were written last; never: they wait for a commit
	endpoints map[model.EndpointID]uint64 // the same for entries of endpoints
	desired   map[uint32]bool             // slots with chains that wait for a commit
	// addresses are noted while a verification runs. overrun is the time of the last one that had no room; 0: all had.
	verifying atomic.Bool
	addresses map[netip.Prefix]uint64
	overrun   uint64
}

const (
	never         = math.MaxUint64
	mostJournaled = 1 << 16
)

func newJournal() *journal {
	return &journal{slots: map[uint32]uint64{}, endpoints: map[model.EndpointID]uint64{}, desired: map[uint32]bool{}, addresses: map[netip.Prefix]uint64{}}
}

// slot notes that chains of a slot are to be written by the next commit.
func (j *journal) slot(number uint32) {
	j.slots[number], j.desired[number] = never, true
}

// commit notes that all desired chains are in the kernel.
func (j *journal) commit() {
	now := j.clock.Add(1)
	for number := range j.desired {
		j.slots[number] = now
	}
	clear(j.desired)
}

// endpoint notes that entries of an endpoint are about to be written; done: they are.
func (j *journal) endpoint(id model.EndpointID, done bool) {
	j.endpoints[id] = never
	if done {
		j.endpoints[id] = j.clock.Add(1)
	}
}

// left notes that the entries of an endpoint that has left were removed.
func (j *journal) left(id model.EndpointID) { delete(j.endpoints, id) }

// verify starts noting addresses.
func (j *journal) verify() {
	j.verifying.Store(true)
	j.overrun = 0
	clear(j.addresses)
}

// address notes that the entry of a prefix may have been written just now.
func (j *journal) address(p netip.Prefix) {
	if !j.verifying.Load() {
		return
	}
	now := j.clock.Add(1)
	if len(j.addresses) >= mostJournaled {
		j.overrun = now
		return
	}
	j.addresses[p.Masked()] = now
}

// moved reports whether an entry that an address may have was written since a time.
func (j *journal) moved(a netip.Addr, since uint64) bool {
	if j.overrun > since {
		return true
	}
	for bits := a.BitLen(); bits >= 0; bits-- {
		if p, err := a.Prefix(bits); err == nil && j.addresses[p] > since {
			return true
		}
	}
	return false
}
