package agent

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/config"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/validate"
)

// View is the loop's state, shown to a query while the loop waits. Nothing of it may be kept or changed.
type View struct {
	Graph    *calc.Graph
	Settings *config.Layers

	dataplane dataplane.Dataplane
	states    []dataplane.EndpointStatus // as of the last attempt
	closed    []closedInterface
	node      []validate.Problem // problems of this node
	synced    bool               // the graph has the first snapshot
}

func (l *Loop) view() View {
	return View{Graph: l.graph, Settings: l.settings.layers, dataplane: l.dataplane, states: waitingStates(l.states, l.progress.waiting()), closed: l.faults.closed.list, node: l.nodeProblems(),
		synced: l.settings.synced}
}

// waitingStates are the states of endpoints while changes do not come to the dataplane for a reason, if there is one: it is
// not known then which endpoints the changes concern.
func waitingStates(states []dataplane.EndpointStatus, reason string) []dataplane.EndpointStatus {
	if reason == "" {
		return states
	}
	waiting := slices.Clone(states)
	for i, s := range waiting {
		waiting[i].NotInForce = cmp.Or(s.NotInForce, "its newest policy may not be in force yet: "+reason)
	}
	return waiting
}

// odd are the problems of the graph.
func (v View) odd() *calc.Odd {
	odd := v.Graph.Odd()
	odd.Unattached = unattached(v.states)
	return odd
}

// quiet reports whether all that is desired has been enforced as far as it can be.
func (v View) quiet() bool {
	return !slices.ContainsFunc(v.states, func(s dataplane.EndpointStatus) bool { return s.Condition == dataplane.Pending })
}

// programmed reports whether the kernel has of an endpoint what is desired, as far as its interface is there.
func programmed(c dataplane.Condition) bool {
	return c == dataplane.Enforced || c == dataplane.NoAddress || c == dataplane.NoInterface
}

// nodeProblems returns the problems of this node that are not about the datastore.
func (l *Loop) nodeProblems() []validate.Problem {
	return append(l.faults.problems(), l.node.problems(l.faults.closed.node)...)
}

type query struct {
	do   func(View)
	done chan struct{}
}

// Query calls do with the loop's state, between two batches. do must be quick: enforcement waits for it.
func (l *Loop) Query(ctx context.Context, do func(View)) error {
	q := query{do: do, done: make(chan struct{})}
	select {
	case l.queries <- q:
		<-q.done
		return nil
	case <-ctx.Done():
		return fmt.Errorf("ask the agent: %w", ctx.Err())
	}
}
