package bpf

import (
	"iter"

	"github.com/margay-project/margay/pkg/compile/plan"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/dataplane/plans"
	"github.com/margay-project/margay/pkg/model"
)

// status computes the status of the endpoints from plans and endpoints. It changes neither.
type status struct {
	plans     *plans.Planner
	endpoints *endpoints
	refusals  *refusals
}

// all is the status of each, by id. lost says why endpoints have lost connections lately.
func (v status) all(lost map[model.EndpointID]string) []dataplane.EndpointStatus {
	staged, refused := plan.StagedNotEvaluated(v.plans.Compiler), v.refusals.Misjudged()
	return v.plans.Statuses(v.bound(), func(s *dataplane.EndpointStatus) {
		s.Staged = v.endpoints.staged.notEvaluated(s.ID, s.Ifindex, staged[s.ID].Failed)
		s.StagedPending = s.StagedPending || staged[s.ID].Pending
		if s.Condition != dataplane.Failed { // then it is closed, and Reason says why
			s.Misjudged = refused[s.ID]
		}
		if ep := v.endpoints.roster.bound[s.ID]; ep != nil && waiting(s.Condition) && v.endpoints.kernel.heirs.wait(ep.policy.Addrs) {
			s.Condition, s.Reason = dataplane.Pending, ""
			s.NotInForce = "closed until connections of former pods with its addresses are removed from the kernel's table"
		}
		s.Flows = lost[s.ID]
		s.Sources = v.endpoints.sources.notInForce(s.Ifindex)
	})
}

// count adds the numbers of failed, waiting and enforced endpoints to stats.
func (v status) count(stats *dataplane.Stats) { v.plans.Count(v.bound(), stats) }

// bound are the endpoints whose policy is known: an earlier agent's may not be yet.
func (v status) bound() iter.Seq[plans.Bound] {
	return func(yield func(plans.Bound) bool) {
		roster := v.endpoints.roster
		for id, ep := range roster.bound {
			if ep.policy == nil {
				continue
			}
			ok := yield(plans.Bound{ID: id, Policy: ep.policy, Ifindex: ep.ifindex, Failure: ep.failure,
				Enforced: ep.ensured == ep.ifindex && !v.endpoints.dirty[id]})
			if !ok {
				return
			}
		}
		if v.plans.Done() || len(roster.adopted) == 0 {
			return
		}
		// A plan has named the endpoints of these interfaces, and has not got as far as their bindings.
		for _, id := range v.plans.Compiler.Endpoints() {
			view, _ := v.plans.Compiler.Endpoint(id)
			if view.Policy == nil || roster.bound[id] != nil {
				continue
			}
			ep := roster.bound[roster.adopted[view.Policy.Iface]]
			if ep != nil && ep.policy == nil && !yield(plans.Bound{ID: id, Policy: view.Policy, Ifindex: ep.ifindex, Enforced: true}) {
				return
			}
		}
	}
}

// waiting reports whether an endpoint with a condition may wait for the connections of former owners of its addresses to be removed.
func waiting(c dataplane.Condition) bool { return c == dataplane.Pending || c == dataplane.NoInterface }
