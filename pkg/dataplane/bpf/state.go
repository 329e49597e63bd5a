package bpf

import (
	"errors"
	"fmt"
	"time"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/compile/plan"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/dataplane/plans"
)

// state mirrors the kernel's state since it was read. Its parts each own their maps; its methods are the steps that
// involve more than one part.
type state struct {
	config     dataplane.Config
	kernel     *kernel
	plans      *plans.Planner
	names      *names
	classes    *classSets
	tables     *tables
	addresses  *addresses
	interfaces *interfaces
	endpoints  *endpoints
	refusals   *refusals
	status     status
	pace       *plans.Pace // of large policies
	renewal    renewal
	comparison comparison
}

// newState returns a state that starts from the enforced one.
func newState(c dataplane.Config, k *kernel) (*state, error) {
	s := &state{config: c, kernel: k, names: newNames(k.maps.Names, k.log), interfaces: newInterfaces(k, c.InterfacePrefix), pace: plans.NewPace(time.Now),
		comparison: comparison{atOnce: entriesAtOnce}}
	s.tables = newTables(k)
	s.classes = newClassSets(k.maps.ClassSets, int(k.maps.MaxEntries(bpf.MargayMapClassSets)), c.Interpret)
	s.addresses = newAddresses(k.maps.Addresses)
	s.endpoints = newEndpoints(k, s.tables, s.interfaces)
	s.renewal = renewal{kernel: k, roster: s.endpoints.roster, retry: plans.NewBackoff(time.Now)}
	snapshot, err := s.adopt()
	if err != nil {
		return nil, fmt.Errorf("read back what is enforced: %w", err)
	}
	if err := s.tables.open(snapshot); err != nil {
		return nil, err
	}
	s.classes.open(s.tables.slots)
	s.plans = plans.NewPlanner(plan.New(plan.Options{
		Limits:  table.Limits{Interpret: c.Interpret, Wide: c.Wide},
		Budget:  plan.DefaultBudget(int(k.maps.MaxEntries(bpf.MargayMapClassSets)), int(k.maps.MaxEntries(bpf.MargayMapIp4Net))),
		Confirm: true,
	}, snapshot), steps)
	s.tables.adopted(s.plans.Compiler.Tables())
	s.refusals = &refusals{addresses: s.addresses, classes: s.classes, endpoints: s.endpoints, Refusals: plans.Refusals{
		Planner: s.plans, Unwritten: s.addresses.unwritten, Retry: plans.NewBackoff(time.Now), Believed: s.addresses.believedClass}}
	s.status = status{s.plans, s.endpoints, s.refusals}
	if len(snapshot.Endpoints) > 0 {
		k.log.Info("took over what is enforced already", "endpoints", len(snapshot.Endpoints),
			"policies", len(snapshot.Tables), "addresses", len(snapshot.Addrs))
	}
	return s, nil
}

// close releases the resources that only this state uses. Packets may still use classes and slots that have just been
// dropped. So it waits for them first: the next state does not know which classes and slots those are.
func (s *state) close() error {
	s.plans.Compiler.Close()
	s.classes.wait()
	return s.tables.slots.Close()
}

// resync returns a resync of this state's parts.
func (s *state) resync() resync {
	return resync{kernel: s.kernel, plans: s.plans, names: s.names, tables: s.tables, interfaces: s.interfaces, endpoints: s.endpoints, comparison: &s.comparison,
		grace: s.config.MidFlowGrace}
}

// observe records interfaces that changed and of the node's addresses.
func (s *state) observe() {
	s.plans.Compiler.HostAddrs(s.kernel.host.Addrs())
	touched := s.interfaces.observe()
	s.kernel.heirs.former.observe(s.interfaces.byName)
	s.endpoints.observe(touched)
}

// addClasses writes the sets of new classes. If there is no room for some, policies that are walked are withdrawn.
func (s *state) addClasses() error {
	if err := s.classes.add(s.plans.Plan.Classes); err != nil || len(s.classes.unrecorded) == 0 || s.config.Interpret {
		return err
	}
	var errs []error
	for _, table := range s.tables.walked() {
		errs = append(errs, s.refusals.withdraw(table, errUnrecorded))
	}
	return errors.Join(errs...)
}

// publish publishes the tables of the plan. Tables that cannot be published are removed from the plan.
func (s *state) publish() error {
	p := s.plans
	if walked := s.tables.toWalk(p.Plan.Tables); len(walked) > 0 && len(s.classes.unrecorded) > 0 {
		if err := s.classes.record(); err != nil {
			s.refusals.Withhold(refuse(walked, err))
		}
	}
	if refused := p.Compiler.TooLarge(p.Plan); len(refused) > 0 && !s.tables.someOf(p.Plan.Tables) {
		s.refusals.Withhold(refused)
	}
	refused, rest, err := s.tables.publish(p.Plan.Tables)
	s.refusals.note(rest)
	s.refusals.Withhold(refused)
	return err
}

// enlarge makes room for rows in tables that are in the kernel. Rows there is no room for are left out, see addRows.
func (s *state) enlarge() error {
	s.refusals.note(s.tables.enlarge(s.plans.Plan.Enlarged))
	return nil
}

// addRows adds rows for new classes to tables that are in the kernel. A table without room for some denies those classes;
// one whose rows cannot be trusted is withdrawn, and its endpoints are closed.
func (s *state) addRows() error {
	var errs []error
	for table, rows := range byTable(s.plans.Plan.Rows) {
		err := s.tables.addRows(table, rows)
		if err == nil {
			continue
		}
		if errors.Is(err, bpfmaps.ErrNoRoom) {
			s.plans.Cramped(table, err)
			s.refusals.Retry.Failed()
		} else {
			errs = append(errs, s.refusals.withdraw(table, err))
		}
	}
	return errors.Join(errs...)
}

// attach programs every endpoint that needs it. A failure is reported and tried again at the end of each Apply, so that the
// other endpoints do not wait for it.
func (s *state) attach() error {
	_ = s.program()
	return nil
}

// endFormer has connections of former owners of addresses removed, beside all other work: after endpoints are programmed, which may come to
// wait for it.
func (s *state) endFormer() error {
	s.kernel.heirs.begin(s.kernel.host, s.tables.slots.Quiesce)
	return nil
}

// program programs every endpoint that needs it, each with its addresses.
func (s *state) program() error {
	// First those that leave an interface: it may be another endpoint's by now.
	errs := []error{s.endpoints.leave()}
	for _, id := range s.endpoints.due() {
		ep := s.endpoints.roster.bound[id]
		if s.endpoints.claim(ep); s.endpoints.waits(ep) {
			continue // connections of former owners are removed, and then Apply is called again
		}
		moved, err := s.endpoints.program(id)
		if moved && err == nil {
			err = s.refusals.writeAddrs(s.addresses.of(ep.policy))
		}
		errs = append(errs, s.endpoints.programmed(id, err))
	}
	return errors.Join(errs...)
}

// firstGuard closes workload interfaces that are no endpoint, from the moment the first plan has opened those that are.
// Like attach, it does not keep later steps from being taken.
func (s *state) firstGuard() error {
	s.interfaces.begin()
	_ = s.interfaces.guard()
	return s.kernel.limitGrace(s.config.MidFlowGrace)
}

// drop removes what the kernel knows of classes, sets and rules that nothing refers to any more.
func (s *state) drop() error {
	plan := s.plans.Plan
	s.classes.retire(plan.DropClasses)
	s.names.drop(plan.DropSets, plan.DropRules)
	s.refusals.note(s.kernel.maps.RuleStats.Zero(plan.DropRules))
	return s.classes.clean(len(plan.DropClasses))
}

func (s *state) meetPeers() error {
	s.endpoints.meetPeers()
	return nil
}

func (s *state) attachAhead() error {
	s.interfaces.attachAhead(s.endpoints.roster.open())
	return nil
}
