package iptables

import (
	"errors"
	"fmt"
	"slices"

	"github.com/margay-project/margay/pkg/dataplane/plans"
)

// step is one kind of kernel write.
type step struct {
	what string
	do   func(*state) error
}

// order is the complete order of kernel writes of a plan; it is defined nowhere else. Repairs of changes made by others come before
// it. A step that fails stops the later ones, so a packet is always judged by a complete policy, the old or the new one. A step
// that failed halfway can be repeated.
//
// A step "wait" returns when no packet is left that has read chains or entries from before an earlier step and would misread those
// of the next. It does nothing if no such chain or entry was written since the last wait; see unseen.
var order = []step{
	{"make sets and chains of this agent's world", (*state).begin},
	{"close endpoints that leave", func(s *state) error { return s.endpoints.shut(s.plans.Plan) }},
	{"write chains of new policies", (*state).publish},
	{"wait before endpoints are bound to them", (*state).waitToGrow},
	{"bind endpoints to chains that know more classes", (*state).grow},
	{"wait before addresses have these classes", (*state).waitToMove},
	{"move addresses", func(s *state) error { return s.move(s.plans.Plan.Addrs) }},
	{"wait before endpoints are bound to chains that know no others", (*state).waitToBind},
	{"bind endpoints", (*state).bind},
	{"unbind endpoints", (*state).unbind},
	{judgedAgain, (*state).conclude},
	{"open endpoints", func(s *state) error { return s.endpoints.admit() }},
	{"know the flows of another dataplane", func(s *state) error { return s.static.learn(s.endpoints.owners) }},
	{"judge packets in this world", (*state).enforce},
	{"remove the chains of the other backend", (*state).leaveFormer},
	{"clean up addresses", func(s *state) error { return s.move(s.plans.Plan.LateAddrs) }},
	{"forget numbers of sets and rules", (*state).forget},
}

// steps are those of order in which a plan comes into force. A policy in a new slot or in the place of another one does so for live
// flows, too, with the last transaction.
var steps = plans.Steps{All: len(order), Moved: through("move addresses"), Bound: through(judgedAgain), Rejudged: through(judgedAgain)}

// judgedAgain is the step with the last transaction of a plan.
const judgedAgain = "have live flows judged again, and remove chains of old policies"

// through is the number of steps of order up to a step, with it.
func through(what string) int {
	return 1 + slices.IndexFunc(order, func(s step) bool { return s.what == what })
}

// finishing lists the steps of every Apply after its plans, also if a plan could not be written. A step that fails does not stop
// the others. Two begin to read the table of connections beside the loop; a step that reads it, too, waits for that.
var finishing = []step{
	{"write addresses that were refused", func(s *state) error { return s.refusals.retryAddrs() }},
	{"write owned addresses that were refused", func(s *state) error { s.addresses.ownAgain(); return nil }},
	{"write entries of endpoints that were refused", func(s *state) error { return s.endpoints.retry() }},
	{"follow the class of the node's address, and routes to further sources", (*state).followNode},
	{"close endpoints for want of addresses", func(s *state) error { return s.refusals.closeWide() }},
	{"end connections of former owners of addresses", func(s *state) error { return s.endpoints.heirs.end() }},
	{"open and close endpoints", func(s *state) error { return s.endpoints.admit() }},
	{"end connections of further sources that are routed elsewhere", func(s *state) error { return s.kept.reroute() }},
	{"destroy sets of further sources that no chain refers to", (*state).cleanSources},
	{"have flows judged again that have generations of the half that is not in use", (*state).replaceFormer},
}

// CarryOn implements plans.Writer.
func (s *state) CarryOn() error {
	for p := s.plans; p.Step < len(order); p.Step++ {
		if err := order[p.Step].do(s); err != nil {
			return fmt.Errorf("%s: %w", order[p.Step].what, err)
		}
	}
	return nil
}

// finish performs the finishing steps, once sets and chains are there.
func (s *state) finish() error {
	if !s.begun {
		return nil
	}
	var errs []error
	for _, step := range finishing {
		if err := step.do(s); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", step.what, err))
		}
	}
	return errors.Join(errs...)
}
