package bpfmaps

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/bpf"
)

// What metrics want to know of the maps. All of it may be called beside the agent's loop, as long as m is open.

// flowTables is how many counters, the first ones, are of connection tables.
const flowTables = 2

// counters count the entries of the hashes that the programs fill. The kernel keeps no count of its own, so they are
// walked.
var counters = []entryCounter{
	{bpf.MargayMapCt4, entriesOf[bpf.Ct4Key, bpf.CtEntry]},
	{bpf.MargayMapCt6, entriesOf[bpf.Ct6Key, bpf.CtEntry]},
}

type entryCounter struct {
	name  string
	count func(context.Context, *ebpf.Map) (uint32, error)
}

// Filled counts the entries of the hashes that the programs fill, by map name; drops is not among them, since Drops
// reads it as a whole. It takes about 0.2 s of CPU for a million flows, and ends early with ctx: with what it has counted, and
// an error.
func (m *Maps) Filled(ctx context.Context) (map[string]MapUse, error) { return m.filled(ctx, counters) }

func (m *Maps) filled(ctx context.Context, what []entryCounter) (map[string]MapUse, error) {
	use := map[string]MapUse{}
	var errs []error
	for _, c := range what {
		n, err := c.count(ctx, m.maps[c.name])
		if err != nil {
			errs = append(errs, fmt.Errorf("count entries of map %s: %w", c.name, err))
			continue
		}
		use[c.name] = MapUse{n, m.maps[c.name].MaxEntries()}
	}
	return use, errors.Join(errs...)
}

func entriesOf[K, V any](ctx context.Context, m *ebpf.Map) (uint32, error) {
	n := uint32(0)
	for part, err := range readAll[K, V](m) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return 0, err
		}
		n += uint32(len(part.keys))
	}
	return min(n, m.MaxEntries()), nil // one that is moved meanwhile may be seen twice
}

// MaxEntries is how many entries the map of that name has room for (bytes of the ring buffer); 0: there is no such map.
func (m *Maps) MaxEntries(name string) uint32 {
	if m.maps[name] == nil {
		return 0
	}
	return m.maps[name].MaxEntries()
}

// Swept is what the sweeps have found so far, of open flows and of half-open ones. The walks, over one table each, are
// counted under open.
func (m *Maps) Swept() (open, half bpf.MargaySweep, err error) {
	for kind, to := range []*bpf.MargaySweep{&open, &half} {
		if err := m.maps[bpf.MargayMapSwept].Lookup(uint32(kind), to); err != nil {
			return open, half, fmt.Errorf("read map %s: %w", bpf.MargayMapSwept, err)
		}
	}
	return open, half, nil
}

// EventCounts are numbers of verdict events since the ring buffer was made.
type EventCounts struct {
	Written uint64 // by the programs
	Read    uint64 // by whoever reads; the others are in the buffer
	// Suppressed were left out, for the rate limit or because the buffer was full, since the last one that was written
	// on the same CPU: that one's successor will say so. Not a total.
	Suppressed uint64
}

// eventRecord is what one event takes in the ring buffer: a header of 8 bytes, and all of it a multiple of 8.
const eventRecord = (uint64(unsafe.Sizeof(bpf.Event{})) + unix.BPF_RINGBUF_HDR_SZ + 7) / 8 * 8

// EventCounts reads how far the ring buffer has been written and read.
func (m *Maps) EventCounts() (EventCounts, error) {
	var c EventCounts
	read, err := m.ringPosition(0)
	if err != nil {
		return c, err
	}
	written, err := m.ringPosition(1)
	if err != nil {
		return c, err
	}
	c.Written, c.Read = written/eventRecord, read/eventRecord
	var budgets []bpf.MargayEventBudget
	if err := m.maps[bpf.MargayMapEventBudgets].Lookup(uint32(0), &budgets); err != nil {
		return c, fmt.Errorf("read map %s: %w", bpf.MargayMapEventBudgets, err)
	}
	for _, b := range budgets {
		c.Suppressed += uint64(b.Suppressed)
	}
	return c, nil
}

// ringPosition reads a page of the ring buffer: 0 begins with how many bytes have been read ever, 1 with how many have
// been written.
func (m *Maps) ringPosition(page int) (uint64, error) {
	size := os.Getpagesize()
	memory, err := unix.Mmap(m.maps[bpf.MargayMapEvents].FD(), int64(page*size), size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return 0, fmt.Errorf("map %s into memory: %w", bpf.MargayMapEvents, err)
	}
	position := atomic.LoadUint64((*uint64)(unsafe.Pointer(&memory[0])))
	if err := unix.Munmap(memory); err != nil {
		return 0, fmt.Errorf("unmap %s: %w", bpf.MargayMapEvents, err)
	}
	return position, nil
}

// Len is the number of endpoints. For the loop that owns them.
func (e *Endpoints) Len() int { return len(e.taken) + len(e.more) }
