package bpf

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
)

// countEvery is how often the hashes that programs fill are walked to know how full they are.
const countEvery = 30 * time.Second

// Counters reads what the programs write: drops, events, flows. It is not the loop's: it may be used beside Apply, by any
// number of goroutines, until the dataplane is closed.
type Counters struct {
	maps  *bpfmaps.Maps
	table *flowTable // only its limiter is used
	now   func() time.Time

	mu      sync.Mutex                  // guards all below
	drops   map[bpf.DropKey]bpf.Counter // as last read; nil: never
	totals  map[dropKind]bpf.Counter    // since the first time
	refused uint64                      // as drops
	total   uint64                      // as totals
	begun   bool                        // refused has been read
	common  bpfmaps.MapUse              // of open flows, as last read
	filled  map[string]bpfmaps.MapUse
	counted time.Time
}

// dropKind is the key of the totals of drops.
type dropKind struct {
	reason uint16
	toPod  uint16
}

// Counters returns a reader of the counters that d's programs write, and of what d's Limiter has removed.
func (d *BPF) Counters() *Counters {
	c := newCounters(d.kernel.maps, time.Now)
	c.table = &d.flowTable
	return c
}

// newCounters returns a reader whose totals begin now: counts from before this process are left out.
func newCounters(m *bpfmaps.Maps, now func() time.Time) *Counters {
	c := &Counters{maps: m, table: &flowTable{}, now: now, totals: map[dropKind]bpf.Counter{}}
	// A counter that cannot be read now begins with the first Read that succeeds.
	_, _ = c.readDrops(), c.readRefused()
	return c
}

// Read reads. Counters that cannot be read keep their last values and are in the error. The maps are walked for at most as long
// as ctx allows.
func (c *Counters) Read(ctx context.Context) (dataplane.KernelCounts, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var k dataplane.KernelCounts
	dropsErr := c.readDrops()
	refusedErr := c.readRefused()
	open, half, sweptErr := c.maps.Flows.Swept()
	events, eventsErr := c.maps.Events.Counts()
	filledErr := c.readFilled(ctx)

	k.Drops, k.ByInterface = c.dropCounts(), c.byInterface()
	k.Events, k.FlowsRefused = dataplane.EventCounts(events), c.total+c.table.limiter.Removed()
	k.Expired = [2]uint64{open.Expired, half.Expired}
	for name, use := range c.filled {
		k.Maps = append(k.Maps, mapUse(name, uint64(use.Entries), uint64(use.Max)))
	}
	k.Maps = append(k.Maps, mapUse("open_flows_in_common", uint64(c.common.Entries), uint64(c.common.Max)))
	k.Maps = append(k.Maps, mapUse(bpf.MargayMapDrops, uint64(len(c.drops)), uint64(c.maps.MaxEntries(bpf.MargayMapDrops))))
	slices.SortFunc(k.Maps, func(a, b dataplane.MapUse) int { return cmp.Compare(a.Name, b.Name) })
	return k, errors.Join(dropsErr, refusedErr, sweptErr, eventsErr, filledErr)
}

func (c *Counters) readFilled(ctx context.Context) error {
	if c.filled != nil && c.now().Sub(c.counted) < countEvery {
		return nil
	}
	filled, err := c.maps.Flows.Use(ctx)
	if c.filled == nil {
		c.filled = map[string]bpfmaps.MapUse{}
	}
	maps.Copy(c.filled, filled)
	// One that took too long is not tried again at once either.
	c.counted = c.now()
	return err
}

// readDrops adds the increase since the last read to the totals. An interface's counts are removed with it, and its
// number may be used again.
func (c *Counters) readDrops() error {
	drops, err := c.maps.Drops.All()
	if err != nil {
		return err
	}
	if c.drops == nil {
		c.drops = drops
	}
	for key, now := range drops {
		before := c.drops[key]
		if now.Packets < before.Packets {
			before = bpf.Counter{}
		}
		kind := dropKind{key.Reason, key.ToPod}
		t := c.totals[kind]
		t.Packets += now.Packets - before.Packets
		t.Bytes += now.Bytes - min(before.Bytes, now.Bytes)
		c.totals[kind] = t
	}
	c.drops = drops
	return nil
}

func (c *Counters) readRefused() error {
	shares, err := c.maps.Flows.Shares()
	if err != nil {
		return err
	}
	now := uint64(0)
	for _, s := range shares {
		now += s.Refused
	}
	if c.begun {
		c.total += now - c.refused
	}
	c.refused, c.begun, c.common = now, true, c.maps.Flows.Common(shares)
	return nil
}

func (c *Counters) dropCounts() []dataplane.DropCount {
	var list []dataplane.DropCount
	for reason := 1; reason < bpf.Reasons(); reason++ { // 0 is no reason
		for toPod, direction := range []model.Direction{model.Egress, model.Ingress} {
			t := c.totals[dropKind{uint16(reason), uint16(toPod)}]
			list = append(list, dataplane.DropCount{Reason: bpf.Label(bpf.DropReason(reason)), Direction: direction, Packets: t.Packets, Bytes: t.Bytes})
		}
	}
	return list
}

func (c *Counters) byInterface() []dataplane.InterfaceDrops {
	type at struct {
		ifindex uint32
		toPod   uint16
	}
	sums := map[at]bpf.Counter{}
	for key, n := range c.drops {
		sum := sums[at{key.Ifindex, key.ToPod}]
		sums[at{key.Ifindex, key.ToPod}] = bpf.Counter{Packets: sum.Packets + n.Packets, Bytes: sum.Bytes + n.Bytes}
	}
	list := make([]dataplane.InterfaceDrops, 0, len(sums))
	for key, n := range sums {
		direction := model.Egress
		if key.toPod != 0 {
			direction = model.Ingress
		}
		list = append(list, dataplane.InterfaceDrops{Ifindex: key.ifindex, Direction: direction, Packets: n.Packets, Bytes: n.Bytes})
	}
	slices.SortFunc(list, func(a, b dataplane.InterfaceDrops) int {
		return cmp.Or(cmp.Compare(a.Ifindex, b.Ifindex), cmp.Compare(a.Direction, b.Direction))
	})
	return list
}
