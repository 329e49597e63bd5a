package iptables

import (
	"slices"
	"testing"
	"time"

	"github.com/margay-project/margay/pkg/dataplane/plans"
	"github.com/margay-project/margay/pkg/model"
)

// restingNode notes after which times the dataplane asks for a pass.
type restingNode struct {
	quietNode
	after []time.Duration
}

func (n *restingNode) Nudge(after time.Duration) { n.after = append(n.after, after) }

// A part of a large policy waits until others' changes have had their time. A plan that cleans up does not, nor does a change.
func TestOnlyPartsOfLargePoliciesRest(t *testing.T) {
	n := newFakeNode(t)
	n.mustApply(t, stage{}.updates()...)
	node, now, s := &restingNode{}, time.Now(), n.state
	n.kernel.Node = node
	s.pace = plans.NewPace(func() time.Time { return now })
	s.pace.Interrupted()
	s.pace.Took(time.Second, 0)
	s.plans.Plan.More = true
	if rest := n.rest(); rest == 0 || rest != s.pace.Wait() {
		t.Errorf("a part of a large policy waits %v, want %v", rest, s.pace.Wait())
	}
	if err := n.Apply(t.Context(), model.Changes{}); err != nil || !slices.Equal(node.after, []time.Duration{s.pace.Wait()}) {
		t.Errorf("Apply: %v; passes are asked for after %v, want %v", err, node.after, s.pace.Wait())
	}
	s.plans.Plan.FollowUp = true
	if rest := n.rest(); rest != 0 {
		t.Errorf("a plan that cleans up waits %v", rest)
	}
	s.plans.Plan.FollowUp = false
	s.plans.Enqueue(model.Changes{InSync: true})
	if rest := n.rest(); rest != 0 {
		t.Errorf("a change waits %v", rest)
	}
}
