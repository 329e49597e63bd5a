package iptables

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/plan"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/dataplane/plans"
	"github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/model"
)

// lockPatience bounds how long a commit waits for other writers of tables, while the loop is blocked. After that the next Apply
// tries again, as soon as the lock is free; see Sweep.
const lockPatience = time.Second

// state is one world: its chains and sets, and the plans and tables that they are made from. Each part owns its state; the methods
// of state are the steps that involve more than one part.
type state struct {
	config    dataplane.Config
	world     *world
	plans     *plans.Planner
	pace      *plans.Pace
	names     *names
	sets      *sets
	slots     *slots
	static    *static
	addresses *addresses
	endpoints *endpoints
	refusals  *refusals
	nodeAddrs func() []netip.Addr
	begun     bool     // sets and chains are there
	dropped   []uint32 // classes that chains know and no address has any more
}

// begin makes the sets and the chains that do not depend on policy. No packet enters them before enforce.
func (s *state) begin() error {
	if s.begun {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), lockPatience)
	defer cancel()
	if err := s.world.clear(ctx, s.sets.kernel); err != nil {
		return err
	}
	if err := errors.Join(s.sets.ensure(), s.addresses.begin(), s.slots.begin(), s.static.begin()); err != nil {
		return err
	}
	s.begun = true
	return nil
}

// publish writes the chains of the plan's new tables, and those of existing tables that get new classes. Tables that cannot be
// written are removed from the plan.
func (s *state) publish() error {
	p := s.plans
	if err := s.forgetClasses(); err != nil {
		return err
	}
	s.names.add(p.Plan)
	s.slots.know(p.Compiler.Classes())
	s.refusals.Withhold(p.Compiler.TooLarge(p.Plan))
	if err := followSources(s, p.Plan); err != nil { // sources that are listed from now on may be written once they are prepared
		return err
	}
	s.endpoints.sources.prepare(p.Plan.Bind)
	if err := relist(s); err != nil {
		return err
	}
	if err := s.replace(); err != nil {
		return err
	}
	refused, err := s.slots.build(p.Plan, p.Compiler.Tables())
	if err != nil {
		return err
	}
	s.refusals.Withhold(refused)
	cramped, err := s.slots.learn(p.Plan.Classes)
	if err != nil {
		return err
	}
	s.refusals.cramp(cramped)
	return s.commit()
}

// forgetClasses removes the classes that earlier plans have dropped from the chains, with the next commit. No address has them.
func (s *state) forgetClasses() error {
	if len(s.dropped) == 0 {
		return nil
	}
	err := s.slots.forgetClasses(s.dropped)
	s.dropped = nil
	return err
}

// replace puts the plan's new tables in place of those that they succeed, if no address moves. Then one transaction changes the
// policy of all endpoints concerned and makes their flows be judged again.
func (s *state) replace() error {
	p := s.plans.Plan
	if len(p.Addrs)+len(p.Rows)+len(p.Classes) > 0 {
		return nil
	}
	done, err := s.slots.replace(p.Tables, s.endpoints.moves(p.Bind))
	if done {
		s.static.stale = true
		err = errors.Join(err, s.static.rejudge(s.slots.uses))
	}
	return err
}

// commit writes the chains as they are desired, in one transaction for each table.
func (s *state) commit() error {
	ctx, cancel := context.WithTimeout(context.Background(), lockPatience)
	defer cancel()
	err := s.world.commit(ctx)
	if refused, ok := errors.AsType[*iptables.RefusedError](err); ok && s.static.listing.untried() {
		s.static.listing.noReversePath = true
		if again := errors.Join(s.static.rewrite(), s.world.commit(ctx)); again == nil {
			return nil
		}
		s.static.listing.noReversePath = false // it was something else
		return errors.Join(refused, s.static.rewrite())
	}
	if err == nil {
		s.static.listing.tried()
	}
	return err
}

// waitToGrow waits before endpoints are bound to chains that were just written.
func (s *state) waitToGrow() error {
	if len(s.plans.Plan.Grow) == 0 {
		return nil
	}
	return s.world.grace(unseen.ofLookups)
}

// waitToMove waits before addresses get classes that former chains do not have, since packets may still be in those chains.
func (s *state) waitToMove() error {
	if len(s.plans.Plan.Addrs) == 0 {
		return nil
	}
	return s.world.grace(unseen.ofLookups)
}

// waitToBind waits before endpoints are bound to chains without the classes that addresses have left. A new endpoint needs no wait
// for lookups, since no packet of it is judged before it is open. A table that was replaced in place needs no binding.
func (s *state) waitToBind() error {
	of := func(unseen) bool { return false }
	for _, b := range s.plans.Plan.Bind {
		switch {
		case !s.endpoints.differs(b):
		case s.endpoints.bound[b.Endpoint.ID] != nil:
			return s.world.grace(unseen.ofEverything)
		default:
			of = unseen.ofChains
		}
	}
	return s.world.grace(of)
}

// grow binds endpoints to chains of the same policy that have more classes.
func (s *state) grow() error {
	s.world.unseen.bound = s.world.unseen.bound || len(s.plans.Plan.Grow) > 0
	return s.endpoints.bind(s.plans.Plan.Grow)
}

// move writes the entries of addresses.
func (s *state) move(list []classes.AddrChange) error {
	s.world.unseen.classes = s.world.unseen.classes || len(list) > 0
	return s.refusals.writeAddrs(list)
}

// unbind removes the entries of endpoints that have left.
func (s *state) unbind() error {
	left := s.endpoints.addrs(s.plans.Plan.Unbind)
	return errors.Join(s.endpoints.unbind(s.plans.Plan.Unbind), s.static.left(left), followSources(s, plan.Plan{}))
}

// bind binds endpoints to the plan's tables. Their live flows are to be judged again.
func (s *state) bind() error {
	var left []netip.Addr
	for _, b := range s.plans.Plan.Bind {
		if s.endpoints.differs(b) {
			s.world.unseen.bound = s.world.unseen.bound || s.endpoints.bound[b.Endpoint.ID] != nil
			s.static.stale = true
		}
		left = append(left, s.changed(b.Endpoint)...)
	}
	return errors.Join(s.endpoints.bind(s.plans.Plan.Bind), s.static.left(left))
}

// changed returns the addresses that an endpoint loses, and those that it gets while packets are judged: conntrack may have flows
// of the former owner. Before this world is in force all flows may be the endpoint's own, so addresses that it gets are left out.
func (s *state) changed(e *model.EndpointPolicy) (list []netip.Addr) {
	had := s.endpoints.addrs([]model.EndpointID{e.ID})
	for _, a := range had {
		if !slices.Contains(e.Addrs, a) {
			list = append(list, a)
		}
	}
	for _, a := range e.Addrs {
		if s.world.inForce && !slices.Contains(had, a) {
			list = append(list, a)
		}
	}
	return list
}

// conclude makes live flows be judged again if the plan may deny some that were allowed, and removes the chains of tables that no
// endpoint uses any more.
func (s *state) conclude() error {
	p := s.plans.Plan
	leaves := func(id model.EndpointID) bool { return id.Kind != model.ShadowEndpoint }
	if len(p.Rejudge) > 0 || slices.ContainsFunc(p.Unbind, leaves) {
		s.static.stale = true
	}
	locate(s)
	s.endpoints.sources.retireUnlisted(s.endpoints.bound)
	if err := errors.Join(s.slots.drop(p.DropTables), s.static.rejudge(s.slots.uses), relist(s)); err != nil {
		return err
	}
	if err := s.commit(); err != nil {
		return err
	}
	s.endpoints.sources.written()
	return nil
}

// enforce sends packets to this world, and removes the other one. If it fails after packets have gone there, it is repeated from that point.
func (s *state) enforce() error {
	if !s.begun {
		return nil
	}
	if !s.world.inForce {
		if s.static.kept != nil {
			if err := s.static.kept.inherit(s.endpoints.owners()); err != nil {
				return err
			}
		}
		if s.world.breached { // begin has left the marks alone
			if err := s.static.clean(); err != nil {
				return err
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), lockPatience)
		defer cancel()
		otherBits := s.static.foreign && len(s.world.other) > 0 && !s.world.breached // filter goes on dropping while mangle does not
		if err := s.world.enforce(ctx, s.sets.kernel, otherBits); err != nil {
			return err
		}
	}
	if s.static.kept != nil {
		if err := s.static.kept.succeed(s.endpoints.owners); err != nil {
			return err
		}
	}
	if s.static.learning != nil {
		return nil // learn has written all marks; no other iptables agent has judged
	}
	if err := s.static.clean(); err != nil {
		return err
	}
	s.static.foreign = false
	return nil
}

// leaveFormer removes the chains and sets in force of the other backend of iptables, now that this agent judges all packets.
func (s *state) leaveFormer() error {
	ctx, cancel := context.WithTimeout(context.Background(), lockPatience)
	defer cancel()
	return s.world.removeFormer(ctx, s.sets.kernel)
}

// forget removes the names of sets and rules that nothing refers to, and notes the dropped classes for forgetClasses.
func (s *state) forget() error {
	s.dropped = append(s.dropped, s.plans.Plan.DropClasses...)
	s.names.drop(s.plans.Plan)
	return nil
}

// Busy implements plans.Writer.
func (s *state) Busy() map[uint32]bool { return s.refusals.Busy() }

// Overhead implements plans.Writer: a transaction of iptables-legacy costs as much as its whole table.
func (s *state) Overhead() time.Duration { return s.world.overhead() }

// repair reads chains and sets again and writes what others have changed. It returns the number of repaired changes.
func (s *state) repair(ctx context.Context, log *slog.Logger) (repaired int, err error) {
	if !s.begun {
		return 0, nil
	}
	entries, err := s.sets.repair(log)
	errs := []error{err}
	for _, t := range s.world.tables {
		findings, err := t.Check(ctx)
		errs = append(errs, err)
		for _, f := range findings {
			log.Warn("chains had been changed by somebody else, repaired", "table", t.String(), "what", f.String())
		}
		repaired += len(findings)
	}
	ctx, cancel := context.WithTimeout(ctx, lockPatience) // the reading needs no lock
	defer cancel()
	return repaired + entries, errors.Join(append(errs, s.world.commit(ctx))...)
}
