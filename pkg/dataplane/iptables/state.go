package iptables

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/dataplane/plans"
	"github.com/margay-project/margay/pkg/model"
)

// lockPatience is how long a commit waits for others that write tables. Nothing else is done meanwhile. After that it is tried again
// with the next Apply, which comes as soon as the lock is free; see Sweep.
const lockPatience = time.Second

// state is one world: chains and sets of its own, and what they are made of. Its parts each own their state; its methods are the
// steps that involve more than one part.
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

// begin makes the sets and the chains that do not depend on policy. No packet comes there before enforce.
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

// publish writes the chains of the plan's new tables, and of those in force that get to know new classes. Tables that cannot be
// written are removed from the plan.
func (s *state) publish() error {
	p := s.plans
	if err := s.forgetClasses(); err != nil {
		return err
	}
	s.names.add(p.Plan)
	s.slots.know(p.Compiler.Classes())
	s.refusals.Withhold(p.Compiler.TooLarge(p.Plan))
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

// forgetClasses has the chains forget the classes that earlier plans have dropped, with the next commit. Addresses have left them.
func (s *state) forgetClasses() error {
	if len(s.dropped) == 0 {
		return nil
	}
	err := s.slots.forgetClasses(s.dropped)
	s.dropped = nil
	return err
}

// replace has the plan's new tables take the place of those that they succeed, where no address moves: then one transaction
// changes the policy of all endpoints concerned, and has their flows judged again.
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
	return s.world.commit(ctx)
}

// waitToGrow waits before endpoints are bound to chains that were just written.
func (s *state) waitToGrow() error {
	if len(s.plans.Plan.Grow) == 0 {
		return nil
	}
	return s.world.grace(unseen.ofLookups)
}

// waitToMove waits before addresses have classes that former chains do not know, which packets may still be judged by.
func (s *state) waitToMove() error {
	if len(s.plans.Plan.Addrs) == 0 {
		return nil
	}
	return s.world.grace(unseen.ofLookups)
}

// waitToBind waits before endpoints are bound to chains that do not know the classes that addresses have left. No packet of a new
// endpoint is judged before it is open. Where chains were replaced in place, nothing is bound.
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

// grow binds endpoints to chains with the same policy that know more classes.
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
	return errors.Join(s.endpoints.unbind(s.plans.Plan.Unbind), s.static.left(left))
}

// bind has endpoints judged by the tables that the plan says. Their live flows are to be judged again.
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

// changed are the addresses that an endpoint leaves, and those that it gets while packets are judged: there may be flows of the
// former owner, or some that went elsewhere before. At a start all flows may be the endpoint's own.
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

// conclude has live flows judged again, if the plan may deny some that were allowed, and removes the chains of tables that judge
// nothing any more.
func (s *state) conclude() error {
	p := s.plans.Plan
	leaves := func(id model.EndpointID) bool { return id.Kind != model.ShadowEndpoint }
	if len(p.Rejudge) > 0 || slices.ContainsFunc(p.Unbind, leaves) {
		s.static.stale = true
	}
	s.static.locate(s.nodeAddrs(), func(a netip.Addr) uint32 { return s.plans.Compiler.Address(a).Class.ID })
	if err := errors.Join(s.slots.drop(p.DropTables), s.static.rejudge(s.slots.uses)); err != nil {
		return err
	}
	return s.commit()
}

// enforce has packets judged in this world, and removes the other one.
func (s *state) enforce() error {
	if !s.begun || s.world.inForce {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), lockPatience)
	defer cancel()
	if err := s.world.enforce(ctx, s.sets.kernel, s.static.foreign && len(s.world.other) > 0); err != nil {
		return err
	}
	if s.static.learning != nil {
		return nil // what is marked is known; no other agent has marked anything
	}
	return s.static.clean()
}

// leaveFormer removes what the other backend of iptables has in force, now that this agent judges all packets.
func (s *state) leaveFormer() error {
	ctx, cancel := context.WithTimeout(context.Background(), lockPatience)
	defer cancel()
	return s.world.removeFormer(ctx, s.sets.kernel)
}

// forget ends the names of sets and rules that nothing refers to, and notes the classes to be forgotten.
func (s *state) forget() error {
	s.dropped = append(s.dropped, s.plans.Plan.DropClasses...)
	s.names.drop(s.plans.Plan)
	return nil
}

// Busy implements plans.Writer.
func (s *state) Busy() map[uint32]bool { return s.refusals.Busy() }

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
	return repaired + entries, errors.Join(append(errs, s.world.commit(ctx))...)
}
