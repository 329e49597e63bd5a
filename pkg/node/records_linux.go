package node

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/margay-project/margay/pkg/agent"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/flowring"
	"github.com/margay-project/margay/pkg/flows"
	"github.com/margay-project/margay/pkg/packetlog"
)

const (
	// namesComeWithin is how long events wait for the names of endpoints and peers after the start. The kernel keeps them.
	namesComeWithin = 10 * time.Second
	// readAgain is how often reading events is tried again.
	readAgain = 10 * time.Second
	// eventsGroup is the NFLOG group to which chains copy packets that policy has judged.
	eventsGroup = 29818
)

// Records publishes the flow records that a dataplane makes of packets it has judged.
type Records struct {
	Dataplane *Dataplane
	Loop      *agent.Loop
	Flows     *flows.Hub
	Log       *slog.Logger
}

// readAgain is how long reading waits after it failed. Copies that no agent reads are lost, and an agent that is being replaced may still
// read them.
func (r *Records) readAgain() time.Duration {
	if r.Dataplane.decide != nil {
		return listenAgain
	}
	return readAgain
}

// Run publishes the kernel's verdict events until ctx ends. Policy is enforced without that, so nothing ends if it fails.
func (r *Records) Run(ctx context.Context) error {
	once := r.readFlowsOnce
	switch {
	case r.Dataplane.decide != nil:
		once = r.readCopiesOnce
	case r.Dataplane.maps == nil:
		return nil // nothing writes events
	}
	timer := time.NewTimer(namesComeWithin)
	defer timer.Stop()
	select {
	case <-r.Loop.InSync():
	case <-timer.C:
	case <-ctx.Done():
		return nil
	}
	names := agent.FlowNames{Loop: r.Loop}
	for failing := false; ; failing = true {
		err := once(ctx, &names)
		if ctx.Err() != nil {
			return err
		}
		if !failing {
			r.Log.Error("verdict events cannot be read, will try again; policy is enforced all the same", "err", err)
		}
		timer.Reset(r.readAgain())
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
	}
}

// readFlowsOnce reads until ctx ends or reading fails.
func (r *Records) readFlowsOnce(ctx context.Context, names *agent.FlowNames) error {
	events, err := r.Dataplane.maps.Events.Open()
	if err != nil {
		return err
	}
	err = flowring.New(flowring.Options{
		Events: events, Names: r.Dataplane.maps.Names, Rules: r.Dataplane.maps, Name: names.Name, Publish: r.Flows.Publish,
		Awaited: func() bool { return r.Flows.Subscribers() > 0 },
	}).Run(ctx)
	if err == nil && ctx.Err() == nil {
		err = errors.New("the ring buffer was closed")
	}
	return err
}

// readCopiesOnce reads copies of packets that rules have judged, until ctx ends or reading fails.
func (r *Records) readCopiesOnce(ctx context.Context, names *agent.FlowNames) error {
	reader, err := packetlog.Open(packetlog.Options{
		Group: eventsGroup, Name: names.Name, Publish: r.Flows.Publish,
		Decide: func(ctx context.Context, copies []packetlog.Copy) (records []flows.Unnamed) {
			// The error is that of ctx: then no records are wanted.
			_ = r.Loop.Query(ctx, func(agent.View) { records = r.Dataplane.decide(copies) })
			return records
		},
	})
	if err != nil {
		return err
	}
	r.Dataplane.copies.begin(reader)
	return errors.Join(reader.Run(ctx), reader.Close())
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
