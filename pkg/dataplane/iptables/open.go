package iptables

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/margay-project/margay/pkg/compile/chains"
	"github.com/margay-project/margay/pkg/compile/plan"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/dataplane/plans"
	"github.com/margay-project/margay/pkg/shares"
)

// Open opens the iptables dataplane. Policy that an earlier agent left in force stays in force until the first Apply has written
// everything that is desired. The dataplane owns the parts of kernel from here on, unless an error is returned.
func Open(ctx context.Context, c dataplane.Config, kernel Kernel, log *slog.Logger) (*IPTables, error) {
	d := &IPTables{config: c, kernel: kernel, log: log, observer: unobserved{}}
	var err error
	if d.state, err = d.newState(ctx, c); err != nil {
		return nil, fmt.Errorf("open iptables dataplane: %w", err)
	}
	return d, nil
}

// newState begins a world with a configuration, beside the one in force.
func (d *IPTables) newState(ctx context.Context, c dataplane.Config) (*state, error) {
	marks, err := chains.NewMarks(c.IptablesMarkMask)
	if err != nil {
		return nil, err
	}
	w, own, err := newWorld(ctx, d.kernel.Tools, "")
	if err != nil {
		return nil, err
	}
	formers, found, err := findFormer(ctx, d.kernel, own)
	if err != nil {
		return nil, err
	}
	w.beside(formers)
	w.inherit(append(found, own))
	s := &state{config: c, world: w, names: newNames(), pace: plans.NewPace(time.Now), nodeAddrs: d.kernel.Node.Addrs}
	budget := plan.DefaultBudget(maxAddresses, maxAddresses).WithClasses(int(marks.Most()))
	s.plans = plans.NewPlanner(plan.New(plan.Options{
		Limits: table.Limits{Part: plan.MaxOpen}, // smaller parts are no faster: each costs a transaction or more
		Budget: budget, Confirm: true, StandIns: true,
	}, nil), steps)
	s.sets = newSets(d.kernel.Sets, w.names)
	s.slots = newSlots(w, shapeOf(d.kernel.Tools.Backend), marks)
	s.addresses = newAddresses(s.sets, marks, w.journal)
	paths := &rerouted{routes: d.kernel.Routes, log: d.log, kept: c.KeepExisting}
	heirs := newHeirs(d.kernel, w)
	heirs.resume(w.inherited.worlds, d.kernel.Sets, formerOwners(d.kernel), d.log)
	s.endpoints = newEndpoints(s.sets, s.slots, paths, heirs, s.addresses.doubt)
	s.static = newStatic(c, w, marks, w.inherited.worlds, d.kernel)
	if c.KeepExisting {
		s.kept = &kept{flows: d.kernel.Flows, routes: d.kernel.Routes, log: d.log, wait: func() error { return w.grace(unseen.always) }}
	}
	if s.static.resumed {
		if err := s.kept.resume(w.inherited.worlds, d.kernel.Sets); err != nil {
			s.static.judgeAgain()
			d.log.Warn("live connections are judged again, although existing ones are to be kept", "err", err)
		}
	}
	s.kept.begin(s.static.resumed)
	s.refusals = &refusals{addresses: s.addresses, endpoints: s.endpoints, Refusals: plans.Refusals{
		Planner: s.plans, Unwritten: s.addresses.unwritten, Retry: plans.NewBackoff(time.Now), Believed: s.addresses.believed}}
	return s, nil
}

// Configure implements dataplane.Dataplane.
func (d *IPTables) Configure(c dataplane.Config) error {
	if err := dataplane.Reconfigurable(d.config, c); err != nil {
		return err
	}
	d.next = &c
	return nil
}

// Reopen implements dataplane.Dataplane: the other world is begun, and what is in force stays until it is complete.
func (d *IPTables) Reopen() error {
	c := d.config
	if d.next != nil {
		c, d.next = *d.next, nil
	}
	d.state.static.generation.wait() // marks of the next world may have other bits
	ctx, cancel := context.WithTimeout(context.Background(), lockPatience)
	defer cancel()
	next, err := d.newState(ctx, c)
	if err != nil {
		return fmt.Errorf("reopen: %w", err)
	}
	next.endpoints.heirs.adopt(d.state.endpoints.heirs)
	if was := d.state.kept; was != nil && next.static.resumed {
		next.kept.adopt(was)
	}
	d.state.plans.Compiler.Close()
	d.config, d.state = c, next
	return nil
}

// Limiter returns the limiter of the endpoints' connections in a table; the caller runs it. Call it at most once, before the first
// Apply. It limits nothing before policy is in force. The status of endpoints has its
// findings, and Stats the use of the table.
func (d *IPTables) Limiter(table shares.Table) *shares.Limiter {
	return d.flows.limit(table, func() { d.kernel.Node.Nudge(0) }, d.log)
}

// unobserved is the observer of a dataplane without one.
type unobserved struct{}

func (unobserved) Compiled(time.Duration)  {}
func (unobserved) Published(time.Duration) {}
