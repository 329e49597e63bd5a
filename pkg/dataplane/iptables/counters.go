package iptables

import (
	"context"
	"sync"
	"time"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/ruleset"
)

const (
	// countShare bounds the share of time spent on reading counters: at most 1/countShare. The time of one reading grows with the
	// tables.
	countShare = 50
	countEvery = time.Second
	countLimit = 30 * time.Second
)

// Counters reads how many packets the chains have dropped. Safe for concurrent use, also beside the loop.
type Counters struct {
	tools  *iptables.Tools
	events func() dataplane.EventCounts
	flows  *flowTable // only its limiter is used

	mu      sync.Mutex // guards all below
	reading bool
	due     time.Time // not before
	err     error     // of the last reading
	seen    map[counted]ruleset.Counter
	totals  map[dropKind]ruleset.Counter
}

// counted identifies the kind of drops that the chains of one name and IP version count.
type counted struct {
	family uint8
	chain  string
	kind   dropKind
}

// Counters returns a reader of the counters of d's chains. events returns the numbers of copied packets.
func (d *IPTables) Counters(events func() dataplane.EventCounts) *Counters {
	return &Counters{tools: d.kernel.Tools, events: events, flows: &d.flows, seen: map[counted]ruleset.Counter{}, totals: map[dropKind]ruleset.Counter{}}
}

// Read returns the totals of the last reading, and starts another reading if one is due. So the totals are as old as the time
// between two calls.
func (c *Counters) Read(context.Context) (dataplane.KernelCounts, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); !c.reading && !now.Before(c.due) {
		c.reading = true
		go c.refresh(now)
	}
	var k dataplane.KernelCounts
	for reason := 1; reason < bpf.Reasons(); reason++ { // 0 is no reason
		for _, direction := range []model.Direction{model.Egress, model.Ingress} {
			t := c.totals[dropKind{bpf.DropReason(reason), direction}]
			k.Drops = append(k.Drops, dataplane.DropCount{Reason: bpf.Label(bpf.DropReason(reason)), Direction: direction, Packets: t.Packets, Bytes: t.Bytes})
		}
	}
	k.Events, k.FlowsRefused = c.events(), c.flows.limiter.Removed()
	return k, c.err
}

// refresh reads the tables. A chain that was written again counts from 0, and what it had counted since the last reading is lost.
func (c *Counters) refresh(began time.Time) {
	ctx, cancel := context.WithTimeout(context.Background(), countLimit)
	defer cancel()
	_, found, err := newWorld(ctx, c.tools, "")
	now := map[counted]ruleset.Counter{}
	if err == nil {
		found.eachDrop(func(family uint8, chain string, kind dropKind, n ruleset.Counter) {
			key := counted{family, chain, kind}
			now[key] = ruleset.Counter{Packets: now[key].Packets + n.Packets, Bytes: now[key].Bytes + n.Bytes}
		})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading, c.err = false, err
	c.due = time.Now().Add(max(countEvery, countShare*time.Since(began)))
	if err == nil {
		c.add(now)
	}
}

// add adds the increase since the last reading to the totals.
func (c *Counters) add(now map[counted]ruleset.Counter) {
	for key, n := range now {
		before := c.seen[key]
		if n.Packets < before.Packets {
			before = ruleset.Counter{}
		}
		t := c.totals[key.kind]
		c.totals[key.kind] = ruleset.Counter{Packets: t.Packets + n.Packets - before.Packets, Bytes: t.Bytes + n.Bytes - min(before.Bytes, n.Bytes)}
	}
	c.seen = now
}
