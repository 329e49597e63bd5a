// Package plans is what every dataplane does with the compiler's plans besides writing them: it keeps the changes that wait
// for a plan and the step that the present plan has got to, and says when refused writes and large policies are next.
package plans

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/compile/plan"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
)

// Planner has the plan that is being written, and the changes that wait for it. Not safe for concurrent use.
type Planner struct {
	Compiler *plan.Compiler
	Waiting  []model.Changes // not compiled yet: an earlier plan is still being carried out
	Plan     plan.Plan
	Changed  bool // the plan has changes of endpoints or sets
	Step     int  // of the dataplane's order, the next one to be carried out; the number of steps: the plan is written
	Failing  bool // the compiler goes without a table that the kernel has refused

	again    bool // it is to plan once more, though nothing has changed
	steps    Steps
	err      error                      // of the last attempt to write the plan
	statuses []dataplane.EndpointStatus // see Statuses
}

// Steps says how a dataplane writes a plan.
type Steps struct {
	All int // so many steps there are
	// After so many of them, addresses have the classes that the plan moves them to; endpoints are judged by the tables that it binds
	// them to, live flows included; and live flows of other endpoints are judged again.
	Moved, Bound, Rejudged int
}

// NewPlanner returns a Planner for a dataplane that writes a plan in these steps.
func NewPlanner(c *plan.Compiler, steps Steps) *Planner {
	return &Planner{Compiler: c, steps: steps, Step: steps.All}
}

// Done reports whether the plan is written completely.
func (p *Planner) Done() bool { return p.Step == p.steps.All }

// Enqueue adds changes to those that wait.
func (p *Planner) Enqueue(ch model.Changes) { p.Waiting = dataplane.Enqueue(p.Waiting, ch) }

// Stuck reports whether changes wait for a plan that could not be written.
func (p *Planner) Stuck() bool {
	return slices.ContainsFunc(p.Waiting, func(ch model.Changes) bool { return len(ch.Endpoints)+len(ch.Sets) > 0 })
}

// Pending reports whether another plan is to be made.
func (p *Planner) Pending() bool { return len(p.Waiting) > 0 || p.Plan.FollowUp || p.again }

// Next makes the next plan, from the oldest waiting changes if there are any. changed reports whether they changed
// endpoints or sets. Classes that are busy keep their numbers. The plan does so many parts of large policies, if
// nothing has changed; 0: it leaves them to a later one.
func (p *Planner) Next(busy map[uint32]bool, parts int) (changed bool) {
	ch := model.Changes{InSync: true}
	if len(p.Waiting) > 0 {
		ch, p.Waiting = p.Waiting[0], p.Waiting[1:]
	}
	p.again = false
	p.Compiler.Hold(busy)
	p.Compiler.Parts(parts)
	p.Plan, p.Step = p.Compiler.Update(ch), 0
	p.Changed = len(ch.Endpoints)+len(ch.Sets) > 0
	return p.Changed
}

// Retry has the compiler make tables again that were refused. It reports whether that changes nothing.
func (p *Planner) Retry() (same bool) {
	p.again, p.Failing = p.Compiler.Retry()
	return p.Failing && !p.again
}

// Withhold changes the plan into one without the tables that could not be published.
func (p *Planner) Withhold(refused map[table.ID]error) {
	p.Plan = p.Compiler.Withhold(p.Plan, refused)
	p.Failing = true
}

// Cramped keeps a table that has no room for some classes and denies them.
func (p *Planner) Cramped(id table.ID, cause error) {
	p.Compiler.MarkFull(id, cause)
	p.Failing = true
}

// Lose drops a table whose content in the kernel is not as planned.
func (p *Planner) Lose(id table.ID, cause error) {
	p.Compiler.MarkBroken(id, cause)
	p.Failing = true
}

// Failures are the endpoint-directions whose policy cannot be compiled, joined in order; nil: there are none.
func (p *Planner) Failures() error {
	var errs []error
	for at, err := range p.Compiler.Failed() {
		state := "is closed"
		if _, bound := p.Compiler.Endpoint(at.Endpoint); bound {
			state = "keeps its last policy"
		}
		errs = append(errs, fmt.Errorf("%s of endpoint %s %s: %w", at.Direction, at.Endpoint, state, err))
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}
