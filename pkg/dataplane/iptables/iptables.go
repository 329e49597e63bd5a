// Package iptables enforces policy with iptables and IP sets, for kernels that lack features the BPF dataplane needs. It carries
// out the same plans, so verdicts are the same.
//
//   - iptables.go: the dataplane; open.go: a start; order.go: the order of kernel writes
//   - state.go: the steps that involve several parts; world.go: the chains and sets of one agent beside those of another;
//     repair.go: what others have changed in them
//   - sets.go, addresses.go, endpoints.go, endpoints_open.go, slots.go, slots_classes.go: the parts that own what they write
//   - generation.go: which judgements of live flows still hold; refused.go: writes that the kernel refuses;
//     ends.go: whose flows those in its table are
//   - heirs.go: connections of former owners of addresses
//   - rerouted.go: live flows of further sources that the node routes elsewhere
//   - masquerade.go: the class of packets that get the node's address
//   - routes.go: whether packets are searched for source routes
//   - inherited.go: which interfaces an earlier agent has left open; preserve.go: its chains stay as they are until then
//   - status.go, inspect.go, events.go, staged.go, connections.go: reports
package iptables

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/margay-project/margay/pkg/compile/chains"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/dataplane/plans"
	"github.com/margay-project/margay/pkg/ipsets"
	"github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/shares"
)

// ResetsMasqueraded is the prefix of copies of packets to the group Resets whose connection has both ends replaced by the node.
const ResetsMasqueraded = chains.ResetsMasqueraded

// Kernel groups the parts of the kernel that the dataplane writes to, and its view of the node.
type Kernel struct {
	Tools *iptables.Tools
	// Others finds the tools of every backend installed here: an earlier agent may have written with another one. May be nil.
	Others func(context.Context) []*iptables.Tools
	Sets   ipsets.Kernel
	// Lists reads sets outside the loop, so that the loop's calls do not wait while a large set is listed. nil: Sets is used.
	Lists ipsets.Kernel
	Flows Flows
	Node  Node
	// Routes reads the node's routes to endpoints with further sources. nil: none are known.
	Routes shares.Routes
	// Present says which interfaces are there.
	Present dataplane.Present
	// SCTPUntracked: the kernel's conntrack does not know SCTP.
	SCTPUntracked bool
	// SourceRoutes reports whether the node's kernel follows source routes of IPv4 packets (net.ipv4.conf.all.accept_source_route). It is
	// called by Apply and Sweep. nil: it may.
	SourceRoutes func() bool
	// Resets is the NFLOG group that gets the packets of ended TCP connections; its listener resets their receivers. 0: there is no
	// listener.
	Resets uint16
	// Events is the NFLOG group that gets copies of packets that policy judges; its listener makes records of them, see Decide. 0:
	// there is no listener.
	Events uint16
	// Learn is called before this dataplane judges its first packet. It adds the flows of the dataplane that judged until now to the
	// kernel's conntrack. nil: no other dataplane judged until now.
	Learn Learn
	// Former returns the interfaces of the endpoints that have addresses by the dataplane which judges until packets go to this one; nil:
	// there is none, or it is not known. May be nil.
	Former func() map[netip.Addr]string
}

// Node is the machine as the dataplane needs it; nodewatch.Watch is one.
type Node interface {
	// Interfaces are the workload interfaces there are now: ifindex by name. The map is the caller's.
	Interfaces() map[string]uint32
	// Addrs are the node's own addresses. The list must not be changed.
	Addrs() []netip.Addr
	// Wake delivers when Interfaces or Addrs may have changed, and after Nudge.
	Wake() <-chan struct{}
	// Nudge makes Wake deliver once more: after the given time, counted from the latest call; 0: soon.
	Nudge(after time.Duration)
	Close()
}

// IPTables enforces with chains and sets of the network namespace that it was opened in.
type IPTables struct {
	config   dataplane.Config
	next     *dataplane.Config // configuration for the next Reopen; nil: config
	kernel   Kernel
	log      *slog.Logger
	observer dataplane.Observer
	resync   bool
	repairs  uint64 // of changes made by others, so far
	looks    uint64 // at the tables, so far
	locked   bool   // the last Apply could not write because somebody else had the lock
	flows    flowTable
	events   events
	state    *state // replaced whole when it is reopened
	// there are the workload interfaces as the last Apply found them, by name.
	there map[string]uint32
	// enforcing are the names of the chains of IPv4 in force, for other goroutines; nil: there are none of this agent yet.
	enforcing atomic.Pointer[chains.Names]
}

var _ dataplane.Dataplane = (*IPTables)(nil)

// Apply implements dataplane.Dataplane.
func (d *IPTables) Apply(ctx context.Context, ch model.Changes) error {
	s := d.state
	s.plans.Enqueue(ch)
	if err := s.world.inherited.inside(s.config.InterfacePrefix, &d.kernel); err != nil {
		return err
	}
	var errs []error
	if d.resync {
		errs = append(errs, d.repair(ctx))
	}
	d.there = d.kernel.Node.Interfaces()
	s.plans.Compiler.HostAddrs(d.kernel.Node.Addrs())
	s.refusals.RetryTables()
	errs = append(errs, s.searchRoutes(d.kernel.followsRoutes()))
	errs = append(errs, plans.CarryOut(s.plans, s.pace, s, d.observer), s.finish(), s.addresses.err())
	if s.world.inForce {
		names := s.world.names[4]
		d.enforcing.Store(&names)
		d.flows.ends.publish(s.endpoints, s.slots.marks, d.kernel.Node.Addrs(), d.kernel.Routes)
	}
	if d.unfinished() {
		d.kernel.Node.Nudge(d.rest())
	}
	err := errors.Join(errs...)
	_, d.locked = errors.AsType[*iptables.LockedError](err)
	if err != nil {
		return errors.Join(err, s.plans.Failures(), s.endpoints.err())
	}
	if err := errors.Join(s.plans.Failures(), s.endpoints.err()); err != nil {
		return &dataplane.HeldBack{Err: err, Retry: s.plans.Failing || s.endpoints.err() != nil}
	}
	return nil
}

// unfinished reports whether the next Apply, without changes, continues a large policy.
func (d *IPTables) unfinished() bool { return d.state.plans.Done() && d.state.plans.Plan.More }

// rest is the time until the next Apply has something to continue. A plan that cleans up does not wait for a part of a large policy.
func (d *IPTables) rest() time.Duration {
	if d.state.plans.Pending() {
		return 0
	}
	return d.state.pace.Wait()
}

// repair reads chains and sets again, and writes what others have changed.
func (d *IPTables) repair(ctx context.Context) error {
	repaired, err := d.state.repair(ctx, d.log)
	copied, other := d.state.world.removeCopied(ctx, d.kernel, d.log)
	d.repairs += uint64(repaired + copied)
	err = errors.Join(err, other)
	d.resync = err != nil
	return err
}

// Prepare implements dataplane.Dataplane: it waits for packets in former chains, so that the next change need not. If that fails, the
// next change does.
func (d *IPTables) Prepare() { _ = d.state.world.grace(unseen.ofChains) }

// Resync implements dataplane.Dataplane.
func (d *IPTables) Resync() { d.resync = true }

// Wake implements dataplane.Dataplane.
func (d *IPTables) Wake() <-chan struct{} { return d.kernel.Node.Wake() }

// Endpoints implements dataplane.Dataplane.
func (d *IPTables) Endpoints() []dataplane.EndpointStatus { return d.status().all() }

func (d *IPTables) status() status {
	return status{plans: d.state.plans, endpoints: d.state.endpoints, refusals: d.state.refusals, interfaces: d.there,
		inForce: d.state.world.inForce, lost: d.flows.limiter.Findings()}
}

// Interfaces implements dataplane.Dataplane.
func (d *IPTables) Interfaces() map[string]uint32 {
	if !d.state.world.inForce {
		return nil
	}
	return d.kernel.Node.Interfaces()
}

// Sweep checks every lookEvery whether others have written to the tables; one check costs microseconds. Every setsEvery-th check
// includes the sets, which costs some 2 ms with 100,000 addresses, and the entries of some (mostCompared). Every flowsEvery-th includes the
// routes to further sources.
const (
	lookEvery  = 250 * time.Millisecond
	setsEvery  = 2
	flowsEvery = 4
)

// Sweep implements dataplane.Dataplane. The kernel removes expired flows itself; Sweep looks for changes that others have made to
// tables and sets, and to the setting about source routes. If there are any, the next Apply repairs them, or follows.
func (d *IPTables) Sweep() (time.Duration, error) {
	d.repairs += uint64(d.state.world.repairFound(d.kernel.Sets, d.log))
	touched, err := d.state.world.touched()
	if d.looks++; err == nil && !touched && d.looks%setsEvery == 0 && d.state.world.inForce {
		touched, err = d.state.sets.touched()
	}
	if err != nil {
		return lookEvery, err
	}
	if touched && !d.resync {
		d.resync = true
		d.kernel.Node.Nudge(0)
	}
	if !d.locked && d.kernel.followsRoutes() != d.state.static.searching {
		d.kernel.Node.Nudge(0)
	}
	if d.locked && !d.kernel.Tools.Locked() {
		d.locked = false
		d.kernel.Node.Nudge(0)
	}
	if d.looks%flowsEvery == 0 && (d.state.kept.moves() || d.state.endpoints.reroutes()) {
		d.kernel.Node.Nudge(0)
	}
	return lookEvery, nil
}

// Observe makes every Apply report to o. Call it before the first Apply.
func (d *IPTables) Observe(o dataplane.Observer) { d.observer = o }

// Close implements dataplane.Dataplane.
func (d *IPTables) Close() error {
	d.state.plans.Compiler.Close()
	d.state.static.generation.wait()
	d.state.endpoints.heirs.wait()
	d.kernel.Node.Close()
	return nil
}

// Stats implements dataplane.Dataplane.
func (d *IPTables) Stats(interfaces bool) dataplane.Stats {
	s := d.state
	sizes := s.plans.Compiler.Sizes()
	stats := dataplane.Stats{Classes: sizes.Classes, Tables: len(s.slots.list), Rules: len(s.names.rules), Sets: len(s.names.sets),
		Unwritten: len(s.plans.Waiting), Repairs: d.repairs}
	if !s.plans.Done() {
		stats.Unwritten++
	}
	d.status().count(&stats)
	if interfaces {
		stats.Interfaces = map[uint32]model.EndpointID{}
		for id, ep := range s.endpoints.bound {
			if ifindex := d.there[ep.policy.Iface]; ifindex != 0 {
				stats.Interfaces[ifindex] = id
			}
		}
	}
	for _, set := range s.sets.fixed() {
		stats.Maps = append(stats.Maps, dataplane.MapUse{Name: set.Spec().Name, Entries: uint64(set.Len()), Max: uint64(set.Spec().MaxEntries)})
	}
	if entries, limit := d.flows.limiter.Use(); limit > 0 {
		stats.Maps = append(stats.Maps, dataplane.MapUse{Name: "nf_conntrack", Entries: uint64(entries), Max: uint64(limit)})
	}
	return stats
}
