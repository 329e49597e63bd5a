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
}

// all is the status of each, by id. lost says why endpoints have lost connections lately.
func (v status) all(lost map[model.EndpointID]string) []dataplane.EndpointStatus {
	staged := plan.StagedNotEvaluated(v.plans.Compiler)
	return v.plans.Statuses(v.bound(), func(s *dataplane.EndpointStatus) {
		s.Staged = v.endpoints.staged.notEvaluated(s.ID, s.Ifindex, staged[s.ID].Failed)
		s.StagedPending = staged[s.ID].Pending
		s.Flows = lost[s.ID]
		s.Sources = v.endpoints.sources.notInForce(s.Ifindex)
	})
}

// count adds the numbers of failed, waiting and enforced endpoints to stats.
func (v status) count(stats *dataplane.Stats) { v.plans.Count(v.bound(), stats) }

// bound are the endpoints whose policy is known: an earlier agent's may not be yet.
func (v status) bound() iter.Seq[plans.Bound] {
	return func(yield func(plans.Bound) bool) {
		for id, ep := range v.endpoints.roster.bound {
			if ep.policy == nil {
				continue
			}
			ok := yield(plans.Bound{ID: id, Policy: ep.policy, Ifindex: ep.ifindex, Failure: ep.failure,
				Enforced: ep.ensured == ep.ifindex && !v.endpoints.dirty[id]})
			if !ok {
				return
			}
		}
	}
}
