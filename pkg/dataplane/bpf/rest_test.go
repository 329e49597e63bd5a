package bpf

import (
	"testing"
	"time"

	"github.com/margay-project/margay/pkg/compile/plan"
	"github.com/margay-project/margay/pkg/dataplane/plans"
	"github.com/margay-project/margay/pkg/model"
)

// A part of a large policy waits until others' changes have had their time. A plan that cleans up does not, nor does a change.
func TestOnlyPartsOfLargePoliciesRest(t *testing.T) {
	now := time.Now()
	pace := plans.NewPace(func() time.Time { return now })
	pace.Interrupted()
	pace.Took(time.Second, 0)
	planner := plans.NewPlanner(plan.New(plan.Options{}, nil), plans.Steps{All: 1})
	t.Cleanup(planner.Compiler.Close)
	d := &BPF{state: &state{pace: pace, plans: planner, names: &names{missing: true}}}
	planner.Plan.More = true
	if rest := d.rest(); rest == 0 || rest != pace.Wait() {
		t.Errorf("a part of a large policy waits %v, want %v", rest, pace.Wait())
	}
	planner.Plan.FollowUp = true
	if rest := d.rest(); rest != 0 {
		t.Errorf("a plan that cleans up waits %v", rest)
	}
	planner.Plan.FollowUp = false
	planner.Enqueue(model.Changes{InSync: true})
	if rest := d.rest(); rest != 0 {
		t.Errorf("a change waits %v", rest)
	}
}
