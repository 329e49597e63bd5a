package iptables

import (
	"iter"

	"github.com/margay-project/margay/pkg/compile/plan"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/dataplane/plans"
	"github.com/margay-project/margay/pkg/model"
)

// status computes the status of the endpoints from plans and endpoints. It changes neither.
type status struct {
	plans      *plans.Planner
	endpoints  *endpoints
	refusals   *refusals
	interfaces map[string]uint32
	inForce    bool
	lost       map[model.EndpointID]string // why endpoints have lost connections lately
}

// all returns the status of each endpoint, by id.
func (v status) all() []dataplane.EndpointStatus {
	staged, refused := plan.StagedNotEvaluated(v.plans.Compiler), v.refusals.Misjudged()
	return v.plans.Statuses(v.bound(), func(s *dataplane.EndpointStatus) {
		if err := staged[s.ID].Failed; err != nil {
			s.Staged = err.Error()
		}
		s.StagedPending = s.StagedPending || staged[s.ID].Pending
		if s.Condition != dataplane.Failed { // then it is closed, and Reason says why
			s.Misjudged = refused[s.ID]
		}
		if ep := v.endpoints.bound[s.ID]; s.Condition == dataplane.Pending && ep != nil && v.endpoints.inherits(ep) {
			s.NotInForce = "closed until connections of former pods with its addresses are removed from the kernel's table"
		}
		s.Flows = v.lost[s.ID]
		s.Sources = v.endpoints.sources.notInForce(s.ID)
	})
}

// count adds the numbers of failed, waiting and enforced endpoints to stats.
func (v status) count(stats *dataplane.Stats) { v.plans.Count(v.bound(), stats) }

// bound yields all endpoints.
func (v status) bound() iter.Seq[plans.Bound] {
	return func(yield func(plans.Bound) bool) {
		for id, ep := range v.endpoints.bound {
			b := plans.Bound{ID: id, Policy: ep.policy, Ifindex: v.interfaces[ep.policy.Iface], Failure: ep.closed,
				Enforced: v.inForce && v.endpoints.isOpen(ep)}
			if b.Failure == "" && ep.refused != nil {
				b.Failure = "closed: " + ep.refused.Error()
			}
			if !yield(b) {
				return
			}
		}
	}
}
