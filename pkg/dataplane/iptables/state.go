package iptables

import (
	"context"
	"errors"
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
	kept      *kept // nil: existing connections are judged again
	begun     bool  // sets and chains are there
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
	if err := s.slots.forgetClasses(); err != nil {
		return err
	}
	s.names.add(p.Plan)
	s.slots.know(p.Compiler.Classes())
	s.refusals.Withhold(p.Compiler.TooLarge(p.Plan))
	if err := s.kept.follow(s.endpoints.planned(p.Plan)); err != nil { // sources that are listed from now on may be written once they are prepared
		return err
	}
	s.endpoints.sources.prepare(p.Plan.Bind)
	if err := s.static.relist(s.endpoints.sources.chains); err != nil {
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

// replace puts the plan's new tables in place of those that they succeed, if no address moves. Then one transaction changes the
// policy of all endpoints concerned and makes their flows be judged again.
func (s *state) replace() error {
	p := s.plans.Plan
	if len(p.Addrs)+len(p.Rows)+len(p.Classes) > 0 {
		return nil
	}
	done, err := s.slots.replace(p.Tables, s.endpoints.moves(p.Bind))
	if done {
		s.static.markStale()
		err = errors.Join(err, s.static.rejudge(s.slots.uses))
	}
	return err
}

// commit writes the chains as they are desired, in one transaction for each table.
func (s *state) commit() error {
	ctx, cancel := context.WithTimeout(context.Background(), lockPatience)
	defer cancel()
	return s.static.commit(ctx)
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
		case s.endpoints.judged(b.Endpoint.ID):
			return s.world.grace(unseen.ofEverything)
		default:
			of = unseen.ofChains
		}
	}
	return s.world.grace(of)
}

// grow binds endpoints to chains of the same policy that have more classes.
func (s *state) grow() error {
	s.world.unseen.noteBound(len(s.plans.Plan.Grow) > 0)
	return s.endpoints.bind(s.plans.Plan.Grow)
}

// move writes the entries of addresses.
func (s *state) move(list []classes.AddrChange) error {
	s.world.unseen.noteClasses(len(list) > 0)
	return s.refusals.writeAddrs(list)
}

// unbind removes the entries of endpoints that have left.
func (s *state) unbind() error {
	if s.world.inForce {
		s.endpoints.heirs.note(s.endpoints.addrs(s.plans.Plan.Unbind), nil)
	}
	return errors.Join(s.endpoints.unbind(s.plans.Plan.Unbind), s.kept.follow(s.endpoints.planned(plan.Plan{})))
}

// bind binds endpoints to the plan's tables. Their live flows are to be judged again. Conntrack may have flows of the former owner of an
// address that an endpoint gets while packets are judged. Before this world is in force the owners in the former one count.
func (s *state) bind() error {
	for _, b := range s.plans.Plan.Bind {
		if s.endpoints.differs(b) {
			s.world.unseen.noteBound(s.endpoints.judged(b.Endpoint.ID))
			s.static.markStale()
		}
		if s.world.inForce {
			s.endpoints.heirs.note(s.endpoints.reassigned(b.Endpoint))
		}
	}
	return s.endpoints.bind(s.plans.Plan.Bind)
}

// conclude makes live flows be judged again if the plan may deny some that were allowed, and removes the chains of tables that no
// endpoint uses any more.
func (s *state) conclude() error {
	p := s.plans.Plan
	leaves := func(id model.EndpointID) bool { return id.Kind != model.ShadowEndpoint }
	if len(p.Rejudge) > 0 || slices.ContainsFunc(p.Unbind, leaves) {
		s.static.markStale()
	}
	s.static.locate(s.nodeAddrs(), s.refusals.classFound)
	s.endpoints.sources.retireUnlisted(s.endpoints.bound)
	if err := errors.Join(s.slots.drop(p.DropTables), s.static.rejudge(s.slots.uses), s.static.relist(s.endpoints.sources.chains)); err != nil {
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
		if err := s.endpoints.heirs.inherit(s.endpoints.owners); err != nil {
			return err
		}
		if s.world.breached { // begin has left the marks alone
			if err := s.static.clean(); err != nil {
				return err
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), lockPatience)
		defer cancel()
		otherBits := s.static.otherBits && len(s.world.other) > 0 && !s.world.breached // filter goes on dropping while mangle does not
		if err := s.world.enforce(ctx, s.sets.kernel, otherBits); err != nil {
			return err
		}
	}
	if err := errors.Join(s.endpoints.heirs.succeed(s.endpoints.owners), s.kept.succeed()); err != nil {
		return err
	}
	return s.static.succeed()
}

// leaveFormer removes the chains and sets in force of the other backend of iptables, now that this agent judges all packets.
func (s *state) leaveFormer() error {
	ctx, cancel := context.WithTimeout(context.Background(), lockPatience)
	defer cancel()
	if err := s.world.removeFormer(ctx, s.sets.kernel); err != nil || !s.begun || s.world.isBeside() {
		return err
	}
	for _, family := range families { // chains that were written beside the others are alone now
		if !s.static.written[family].beside {
			continue
		}
		if err := s.static.write(family); err != nil {
			return err
		}
	}
	if !s.world.changed() {
		return nil
	}
	return s.commit()
}

// forget removes the names of sets and rules that nothing refers to. The chains lose the dropped classes with the next plan.
func (s *state) forget() error {
	s.slots.dropClasses(s.plans.Plan.DropClasses)
	s.names.drop(s.plans.Plan)
	return nil
}

// followNode writes the chains again if the node's address has another class than they have: an entry was refused, or written at last,
// after the plan had concluded. It also has live flows judged again if the node routes further sources elsewhere.
func (s *state) followNode() error {
	if !s.plans.Done() {
		return nil // the plan concludes with the class
	}
	s.static.locate(s.nodeAddrs(), s.refusals.classFound)
	moved := s.endpoints.routes.moved
	if !s.static.isMisplaced(s.slots.uses) && !moved {
		return nil
	}
	if moved {
		s.static.markStale()
	}
	if err := s.static.rejudge(s.slots.uses); err != nil {
		return err
	}
	if err := s.commit(); err != nil {
		return err
	}
	s.static.located()
	s.endpoints.routes.followed()
	return nil
}

// searchRoutes makes chains search the packets of pods for source routes, or stop that. The program that finds them costs each packet
// about a hundredth of a round trip, and a kernel that follows no source routes drops such packets itself.
func (s *state) searchRoutes(search bool) error {
	if !s.static.search(search) {
		return nil
	}
	if s.begun {
		if err := errors.Join(s.static.rewrite(), s.world.lead(), s.commit()); err != nil {
			return err
		}
	}
	s.static.searched()
	return nil
}

// replaceFormer has marks with generations of the half that is not in use replaced, once the chains in force write none of these.
// Without the transaction that goes to the other half they still do.
func (s *state) replaceFormer() error {
	if !s.plans.Done() || !s.world.inForce || s.world.changed() || slices.ContainsFunc(families[:], s.static.ofOtherHalf) {
		return nil
	}
	return s.static.replaceFormer()
}

// cleanSources destroys the sets of endpoints that list no further sources any more. If no endpoint lists any, it removes the
// connections that packets judged alone have begun.
func (s *state) cleanSources() error {
	if s.endpoints.sources.unusedLeft() {
		if err := s.world.grace(unseen.ofChains); err != nil {
			return err
		}
	}
	err := s.endpoints.sources.clean()
	if !s.world.inForce || !s.plans.Done() {
		return err
	}
	return errors.Join(err, s.static.forgetLone())
}

// Busy implements plans.Writer.
func (s *state) Busy() map[uint32]bool { return s.refusals.Busy() }

// Overhead implements plans.Writer: a transaction of iptables-legacy costs as much as its whole table.
func (s *state) Overhead() time.Duration { return s.world.overhead() }

// Fault implements plans.Writer. Nothing can be written while somebody else has the lock, so another world would wait for it, too, and the
// dataplane would not know any more which endpoints the changes concern.
func (s *state) Fault(err error) bool {
	_, locked := errors.AsType[*iptables.LockedError](err)
	return !locked
}
