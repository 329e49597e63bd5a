package iptables

import (
	"errors"
	"fmt"
)

// step is one kind of kernel write.
type step struct {
	what string
	do   func(*state) error
}

// order is the complete order of kernel writes of a plan, the one place where it is laid down. Repairs of changes made by
// others come before them. A step that leaves something undone stops the later ones, so a packet is always judged by an old
// policy or a new one. Each step can be taken again after it failed halfway.
//
// "wait" returns when every packet has left chains and entries that it could misunderstand otherwise. It does nothing if no such thing
// was written since; see unseen.
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
	{"have live flows judged again, and remove chains of old policies", (*state).conclude},
	{"open endpoints", func(s *state) error { return s.endpoints.admit() }},
	{"know the flows of another dataplane", (*state).learn},
	{"judge packets in this world", (*state).enforce},
	{"remove the chains of the other backend", (*state).leaveFormer},
	{"clean up addresses", func(s *state) error { return s.move(s.plans.Plan.LateAddrs) }},
	{"forget numbers of sets and rules", (*state).forget},
}

// finishing lists the steps of every Apply after its plans, also if a plan could not be written. None of them waits for another.
var finishing = []step{
	{"write addresses that were refused", func(s *state) error { return s.refusals.retryAddrs() }},
	{"write entries of endpoints that were refused", func(s *state) error { return s.endpoints.retry() }},
	{"close endpoints for want of addresses", func(s *state) error { return s.refusals.closeWide() }},
	{"open and close endpoints", func(s *state) error { return s.endpoints.admit() }},
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

// finish takes the steps that are due in any case, once something is enforced.
func (s *state) finish() error {
	if !s.begun {
		return nil
	}
	var errs []error
	for _, step := range finishing {
		errs = append(errs, step.do(s))
	}
	return errors.Join(errs...)
}
