package node

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/margay-project/margay/pkg/agent"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/flowring"
	"github.com/margay-project/margay/pkg/flows"
	"github.com/margay-project/margay/pkg/packetlog"
)

const (
	// namesComeWithin is how long events wait for the names of endpoints and peers after the start. The kernel keeps them.
	namesComeWithin = 10 * time.Second
	// readAgain is the time from a failure to read events to the next attempt.
	readAgain = 10 * time.Second
	// eventsGroup is the NFLOG group to which chains copy packets that policy has judged.
	eventsGroup = 29818
)

// records are how the packets that a dataplane has judged become flow records.
type records struct {
	read  func(ctx context.Context, to *publisher) error // until ctx ends or reading fails; nil: there are none to read
	again time.Duration                                  // from a failure to the next attempt
}

// publisher is where flow records go. The loop knows the names of their ends.
type publisher struct {
	loop  *agent.Loop
	hub   *flows.Hub
	names agent.FlowNames
}

// PublishRecords gives the hub the flow records of the packets that the dataplane judges, until ctx ends. Policy is enforced without
// that, so nothing ends if reading fails: it is tried again.
func (d *Dataplane) PublishRecords(ctx context.Context, loop *agent.Loop, hub *flows.Hub, log *slog.Logger) error {
	if d.records.read == nil {
		return nil
	}
	timer := time.NewTimer(namesComeWithin)
	defer timer.Stop()
	select {
	case <-loop.InSync():
	case <-timer.C:
	case <-ctx.Done():
		return nil
	}
	to := &publisher{loop: loop, hub: hub, names: agent.FlowNames{Loop: loop}}
	for failing := false; ; failing = true {
		err := d.records.read(ctx, to)
		if ctx.Err() != nil {
			return err
		}
		if !failing {
			log.Error("verdict events cannot be read, will try again; policy is enforced all the same", "err", err)
		}
		timer.Reset(d.records.again)
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
	}
}

// recordsOfEvents are those of the events that programs write.
func recordsOfEvents(maps *bpfmaps.Maps) records {
	return records{again: readAgain, read: func(ctx context.Context, to *publisher) error {
		events, err := maps.Events.Open()
		if err != nil {
			return err
		}
		err = flowring.New(flowring.Options{
			Events: events, Names: maps.Names, Rules: maps, Name: to.names.Name, Publish: to.hub.Publish,
			Awaited: func() bool { return to.hub.Subscribers() > 0 },
		}).Run(ctx)
		if err == nil && ctx.Err() == nil {
			err = errors.New("the ring buffer was closed")
		}
		return err
	}}
}

// recordsOfCopies are those of copies of packets that rules have judged. decide makes records of copies; it is for the loop's goroutine.
// Copies that no agent reads are lost, and an agent that is being replaced may still read them: so attempts follow soon.
func recordsOfCopies(decide func([]packetlog.Copy) []flows.Unnamed, counts *copyCounts) records {
	return records{again: listenAgain, read: func(ctx context.Context, to *publisher) error {
		reader, err := packetlog.Open(packetlog.Options{
			Group: eventsGroup, Name: to.names.Name, Publish: to.hub.Publish,
			Decide: func(ctx context.Context, copies []packetlog.Copy) (made []flows.Unnamed) {
				// The error is that of ctx: then no records are wanted.
				_ = to.loop.Query(ctx, func(agent.View) { made = decide(copies) })
				return made
			},
		})
		if err != nil {
			return err
		}
		counts.begin(reader)
		return errors.Join(reader.Run(ctx), reader.Close())
	}}
}

// copyCounts counts the copies of packets that were read and lost.
type copyCounts struct {
	mu     sync.Mutex // guards all below
	reader *packetlog.Reader
	before dataplane.EventCounts // of earlier readers
}

// begin counts those of another reader.
func (c *copyCounts) begin(r *packetlog.Reader) {
	before := c.counts()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reader, c.before = r, before
}

// counts are as those of BPF mode's buffer. Packets beyond the limit of a rule are in none of them.
func (c *copyCounts) counts() dataplane.EventCounts {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.before
	if c.reader != nil {
		read := c.reader.Read()
		n.Read, n.Written = n.Read+read, n.Written+read+c.reader.Lost()
	}
	return n
}
