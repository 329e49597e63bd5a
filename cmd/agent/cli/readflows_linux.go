package cli

import (
	"context"
	"errors"
	"time"

	"github.com/margay-project/margay/pkg/agent"
	"github.com/margay-project/margay/pkg/flowring"
)

const (
	// namesComeWithin is how long events wait for the names of endpoints and peers after the start. The kernel keeps them.
	namesComeWithin = 10 * time.Second
	// readAgain is how often reading events is tried again.
	readAgain = 10 * time.Second
)

// readFlows publishes the kernel's verdict events. Policy is enforced without that, so nothing ends if it fails.
func (p *process) readFlows(ctx context.Context) error {
	if p.plane.maps == nil {
		return nil // nothing writes events
	}
	timer := time.NewTimer(namesComeWithin)
	defer timer.Stop()
	select {
	case <-p.loop.InSync():
	case <-timer.C:
	case <-ctx.Done():
		return nil
	}
	names := agent.FlowNames{Loop: p.loop}
	for failing := false; ; failing = true {
		err := p.readFlowsOnce(ctx, &names)
		if ctx.Err() != nil {
			return err
		}
		if !failing {
			p.log.Error("verdict events cannot be read, will try again; policy is enforced all the same", "err", err)
		}
		timer.Reset(readAgain)
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
	}
}

// readFlowsOnce reads until ctx ends or reading fails.
func (p *process) readFlowsOnce(ctx context.Context, names *agent.FlowNames) error {
	events, err := p.plane.maps.Events.Open()
	if err != nil {
		return err
	}
	err = flowring.New(flowring.Options{
		Events: events, Names: p.plane.maps.Names, Rules: p.plane.maps, Name: names.Name, Publish: p.flows.Publish,
		Awaited: func() bool { return p.flows.Subscribers() > 0 },
	}).Run(ctx)
	if err == nil && ctx.Err() == nil {
		err = errors.New("the ring buffer was closed")
	}
	return err
}
