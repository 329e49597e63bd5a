package bpf

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/margay-project/margay/pkg/dataplane/plans"
)

// step is one kind of kernel write.
type step struct {
	what string
	do   func(*state) error
}

// The three lists below are the complete order of kernel writes, the one place where it is laid down. Writes that repair
// changes made by others (resync), and new numbers for the policies in force (renewal), come before them. The state of another map layout is removed after them (leaveOlder),
// once everything is enforced.

// order is that of a plan. A step that leaves something undone stops the later ones, so a packet is always judged
// by an old policy or a new one. Each step can be taken again after it failed halfway.
var order = []step{
	{"name sets and rules", func(s *state) error { s.names.add(s.plans.Plan.SetNames, s.plans.Plan.RuleNames); return nil }},
	{"remove further sources", func(s *state) error { return s.endpoints.narrow(s.plans.Plan) }},
	{"add classes", (*state).addClasses},
	{"publish policies", (*state).publish},
	{"make room for new classes", (*state).enlarge},
	{"add rows of new classes", (*state).addRows},
	{"bind endpoints to grown tables", func(s *state) error { return s.endpoints.grow(s.plans.Plan.Grow) }},
	{"note that flows are to be judged again", func(s *state) error { return s.endpoints.announce(s.plans.Plan.Rejudge) }},
	{"move addresses", func(s *state) error { return s.refusals.writeAddrs(s.plans.Plan.Addrs) }},
	{"bind endpoints", func(s *state) error { return s.endpoints.bind(s.plans.Plan.Bind) }},
	{"unbind endpoints", func(s *state) error { return s.endpoints.unbind(s.plans.Plan.Unbind) }},
	{"have live flows judged again", func(s *state) error { return s.endpoints.rejudge(s.plans.Plan.Rejudge) }},
	{"know the flows of another dataplane", (*state).carry},
	{"attach", (*state).attach},
	{"guard the node", (*state).firstGuard},
	{"release policies", func(s *state) error { return s.tables.release(s.plans.Plan.DropTables, s.endpoints.entries) }},
	{"clean up addresses", func(s *state) error { return s.refusals.writeAddrs(s.plans.Plan.LateAddrs) }},
	{"drop classes, sets and rules", (*state).drop},
}

// steps are those of order in which a plan comes into force.
var steps = plans.Steps{All: len(order), Moved: through("move addresses"), Bound: through("bind endpoints"),
	Rejudged: through("have live flows judged again")}

// through is the number of steps of order up to a step, with it.
func through(what string) int {
	return 1 + slices.IndexFunc(order, func(s step) bool { return s.what == what })
}

// finishing lists the steps of every Apply after its plans, also if a plan could not be written: single endpoints,
// addresses and interfaces. None of them waits for another.
var finishing = []step{
	{"write addresses that were refused", func(s *state) error { return s.refusals.retryAddrs() }},
	{"close endpoints for want of addresses", func(s *state) error { return s.refusals.closeWide() }},
	{"note that connections of former owners of addresses have ended", func(s *state) error { return s.kernel.heirs.ended(s.kernel.host, s.plans.Done()) }},
	{"program endpoints", (*state).program},
	{"end connections of former owners of addresses", (*state).endFormer},
	{"detach from interfaces that were left", func(s *state) error { return s.interfaces.detach() }},
	{"guard the node", func(s *state) error { return s.interfaces.guard() }},
	{"write what failed attempts have left", func(s *state) error { return writeLeft(s.kernel.maps) }},
	{"name endpoints", func(s *state) error { s.names.nameEndpoints(s.endpoints.roster.bound); return nil }},
}

// ahead are the steps while nothing waits: see Prepare. Failures are left to Apply.
var ahead = []step{
	{"find out about pods' sides", (*state).meetPeers},
	{"attach programs ahead", (*state).attachAhead},
}

// CarryOn implements plans.Writer.
func (s *state) CarryOn() error {
	p := s.plans
	if p.Done() {
		return nil
	}
	defer s.interfaces.begin()
	for ; p.Step < len(order); p.Step++ {
		if err := order[p.Step].do(s); err != nil {
			return fmt.Errorf("%s: %w", order[p.Step].what, err)
		}
	}
	return nil
}

// Busy implements plans.Writer.
func (s *state) Busy() map[uint32]bool { return s.refusals.busyClasses() }

// Fault implements plans.Writer: no other program keeps this dataplane from writing.
func (s *state) Fault(error) bool { return true }

// Overhead implements plans.Writer: maps are written entry by entry.
func (s *state) Overhead() time.Duration { return 0 }

func (s *state) finish() error {
	var errs []error
	for _, step := range finishing {
		errs = append(errs, step.do(s))
	}
	return errors.Join(errs...)
}

func (s *state) prepare() {
	for _, step := range ahead {
		_ = step.do(s) // they have none
	}
}
