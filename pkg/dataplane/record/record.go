// Package record is a dataplane that enforces nothing. It keeps the policy that a dataplane on this node would have to
// enforce, logs each change, and answers tools. It serves to try policy where the kernel has no BPF, and ensures that the
// code in front of a dataplane depends on the interface alone. It needs no privileges, and builds on any system.
package record

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
)

// Dataplane records. Not safe for concurrent use: one loop owns it.
type Dataplane struct {
	log       *slog.Logger
	config    dataplane.Config
	next      *dataplane.Config
	endpoints map[model.EndpointID]*model.EndpointPolicy
	sets      map[model.SetID]int // members
	applied   bool
	fresh     bool // the next changes are everything
}

var _ dataplane.Dataplane = (*Dataplane)(nil)

// New returns a dataplane that has nothing.
func New(c dataplane.Config, log *slog.Logger) *Dataplane {
	return &Dataplane{log: log, config: c, endpoints: map[model.EndpointID]*model.EndpointPolicy{}, sets: map[model.SetID]int{}}
}

// Apply implements dataplane.Dataplane. It never fails.
func (d *Dataplane) Apply(_ context.Context, ch model.Changes) error {
	if !ch.InSync {
		return nil
	}
	if d.fresh {
		clear(d.endpoints)
		clear(d.sets)
	}
	d.applied, d.fresh = true, false
	for id, change := range ch.Sets {
		if change.Gone {
			delete(d.sets, id)
		} else {
			d.sets[id] += len(change.Added) - len(change.Removed)
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(ch.Endpoints), model.EndpointID.Compare) {
		policy := ch.Endpoints[id]
		if policy == nil {
			delete(d.endpoints, id)
			d.log.Info("recorded: an endpoint has gone", "endpoint", id.String())
			continue
		}
		d.endpoints[id] = policy
		d.log.Info("recorded: the policy of an endpoint", "endpoint", id.String(), "iface", policy.Iface,
			"ingress", policies(policy.Ingress), "egress", policies(policy.Egress))
	}
	return nil
}

// policies are those of one direction, in order.
func policies(p *model.DirectionPolicy) []string {
	names := []string{}
	for _, tier := range p.Tiers {
		for _, policy := range tier.Policies {
			names = append(names, policy.Key.ObjectText())
		}
	}
	return names
}

// notEnforced is the status text of each endpoint.
const notEnforced = "recorded only: this dataplane enforces nothing"

// Endpoints implements dataplane.Dataplane. None is enforced.
func (d *Dataplane) Endpoints() []dataplane.EndpointStatus {
	var list []dataplane.EndpointStatus
	for _, id := range slices.SortedFunc(maps.Keys(d.endpoints), model.EndpointID.Compare) {
		policy := d.endpoints[id]
		list = append(list, dataplane.EndpointStatus{ID: id, Iface: policy.Iface, Addrs: policy.Addrs,
			Condition: dataplane.Pending, Reason: notEnforced})
	}
	return list
}

// Stats implements dataplane.Dataplane.
func (d *Dataplane) Stats(bool) dataplane.Stats {
	return dataplane.Stats{Waiting: len(d.endpoints), Sets: len(d.sets)}
}

// Interfaces implements dataplane.Dataplane: it knows none.
func (d *Dataplane) Interfaces() map[string]uint32 {
	if !d.applied {
		return nil
	}
	return map[string]uint32{}
}

// Ready implements dataplane.Dataplane: it knows none.
func (d *Dataplane) Ready() map[string]bool { return nil }

// Reopen implements dataplane.Dataplane.
func (d *Dataplane) Reopen() error {
	d.fresh = true
	if d.next != nil {
		d.config, d.next = *d.next, nil
	}
	return nil
}

// Configure implements dataplane.Dataplane.
func (d *Dataplane) Configure(c dataplane.Config) error {
	if err := dataplane.Reconfigurable(d.config, c); err != nil {
		return err
	}
	d.next = &c
	return nil
}

// sweepNever is long: there are no flows.
const sweepNever = time.Hour

// Prepare, Resync, Wake, Sweep and Close implement dataplane.Dataplane: there is nothing to do.

func (d *Dataplane) Prepare()                      {}
func (d *Dataplane) Resync()                       {}
func (d *Dataplane) Wake() <-chan struct{}         { return nil }
func (d *Dataplane) Sweep() (time.Duration, error) { return sweepNever, nil }
func (d *Dataplane) Close() error                  { return nil }
