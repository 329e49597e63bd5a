package bpf

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

// planner has the plan that is being written, and the changes that wait for it.
type planner struct {
	compiler *plan.Compiler
	waiting  []model.Changes // not compiled yet: an earlier plan is still being carried out
	plan     plan.Plan
	changed  bool // it has changes
	step     int  // next of order to be taken for plan; len(order): done
	failing  bool // the compiler goes without a table that the kernel has refused
	again    bool // it is to plan once more, though nothing has changed
	steps    int  // of order
}

func newPlanner(c *plan.Compiler, steps int) *planner {
	return &planner{compiler: c, steps: steps, step: steps}
}

// done reports whether the plan is written completely.
func (p *planner) done() bool { return p.step == p.steps }

func (p *planner) enqueue(ch model.Changes) { p.waiting = dataplane.Enqueue(p.waiting, ch) }

// pending reports whether another plan is to be made.
func (p *planner) pending() bool { return len(p.waiting) > 0 || p.plan.FollowUp || p.again }

// next makes the next plan, from the oldest waiting changes if there are any. changed reports whether they changed
// endpoints or sets. Classes that are busy keep their numbers. rest: the plan leaves large policies to a later one.
func (p *planner) next(busy map[uint32]bool, rest bool) (changed bool) {
	ch := model.Changes{InSync: true}
	if len(p.waiting) > 0 {
		ch, p.waiting = p.waiting[0], p.waiting[1:]
	}
	p.again = false
	p.compiler.Hold(busy)
	p.compiler.Rest(rest)
	p.plan, p.step = p.compiler.Update(ch), 0
	p.changed = len(ch.Endpoints)+len(ch.Sets) > 0
	return p.changed
}

// retry has the compiler make tables again that were refused. It reports whether that changes nothing.
func (p *planner) retry() (same bool) {
	p.again, p.failing = p.compiler.Retry()
	return p.failing && !p.again
}

// withhold changes the plan into one without the tables that could not be published.
func (p *planner) withhold(refused map[table.ID]error) {
	p.plan = p.compiler.Withhold(p.plan, refused)
	p.failing = true
}

// cramped keeps a table that has no room for some classes and denies them.
func (p *planner) cramped(id table.ID, cause error) {
	p.compiler.MarkFull(id, cause)
	p.failing = true
}

// lose drops a table whose content in the kernel is not as planned.
func (p *planner) lose(id table.ID, cause error) {
	p.compiler.MarkBroken(id, cause)
	p.failing = true
}

// failures are the endpoint-directions whose policy cannot be compiled.
func (p *planner) failures() error {
	var errs []error
	for at, err := range p.compiler.Failed() {
		state := "is closed"
		if _, bound := p.compiler.Endpoint(at.Endpoint); bound {
			state = "keeps its last policy"
		}
		errs = append(errs, fmt.Errorf("%s of endpoint %s %s: %w", at.Direction, at.Endpoint, state, err))
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}
