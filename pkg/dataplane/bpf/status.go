package bpf

import (
	"slices"

	"github.com/margay-project/margay/pkg/compile/plan"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
)

// beingMade is the status text of endpoints whose policy is so large that it takes several plans.
const beingMade = "the new policy is large and still being compiled"

// status computes the status of the endpoints from plans and endpoints. It changes neither.
type status struct {
	plans     *planner
	endpoints *endpoints
}

// all is the status of each, by id.
func (v status) all() []dataplane.EndpointStatus {
	known, compiler := v.endpoints, v.plans.compiler
	list := make([]dataplane.EndpointStatus, 0, len(known.roster.bound))
	waiting := compiler.Waiting()
	staged := plan.StagedFailed(compiler)
	failed := map[model.EndpointID]string{}
	for at, err := range compiler.Failed() {
		if text := err.Error(); failed[at.Endpoint] < text { // of both directions always the same
			failed[at.Endpoint] = text
		}
	}
	for id, ep := range known.roster.bound {
		if ep.policy == nil {
			continue
		}
		s := dataplane.EndpointStatus{ID: id, Iface: ep.policy.Iface, Addrs: ep.policy.Addrs, Ifindex: ep.ifindex}
		s.Condition, s.Reason = v.condition(id, ep, failed[id], waiting[id])
		s.Staged = known.staged.notEvaluated(id, ep.ifindex, staged[id])
		list = append(list, s)
		delete(failed, id)
		delete(waiting, id)
	}
	for id := range waiting {
		if failed[id] == "" {
			list = append(list, dataplane.EndpointStatus{ID: id, Condition: dataplane.Pending, Reason: "closed: " + beingMade})
		}
	}
	for id, text := range failed {
		list = append(list, dataplane.EndpointStatus{ID: id, Condition: dataplane.Held, Reason: "closed: " + text})
	}
	slices.SortFunc(list, func(a, b dataplane.EndpointStatus) int { return a.ID.Compare(b.ID) })
	return list
}

// condition returns the condition of an endpoint with its reason. held is the reason why its policy cannot be compiled;
// empty: it can. making: another policy is being made for it.
func (v status) condition(id model.EndpointID, ep *endpoint, held string, making bool) (dataplane.Condition, string) {
	switch {
	case held != "":
		if _, open := v.plans.compiler.Endpoint(id); !open || ep.ifindex == 0 {
			return dataplane.Held, "closed: " + held
		}
		return dataplane.Held, "keeps its last policy: " + held
	case ep.failure != "":
		return dataplane.Failed, ep.failure
	case making:
		return dataplane.Pending, "keeps its last policy: " + beingMade
	case ep.ifindex == 0:
		return dataplane.NoInterface, "waiting for its interface"
	case len(ep.policy.Addrs) == 0:
		return dataplane.NoAddress, "it owns no address: all packets that it sends are dropped"
	case v.inForce(id, ep):
		return dataplane.Enforced, ""
	}
	return dataplane.Pending, ""
}

// count adds the numbers of failed, waiting and enforced endpoints to stats.
func (v status) count(stats *dataplane.Stats) {
	failed := map[model.EndpointID]bool{}
	for at := range v.plans.compiler.Failed() {
		failed[at.Endpoint] = true
	}
	for id, ep := range v.endpoints.roster.bound {
		switch {
		case ep.policy == nil: // an earlier agent's, not known yet
		case ep.failure != "" || failed[id]:
			stats.Failed++
		case ep.ifindex == 0 || !v.inForce(id, ep):
			stats.Waiting++
		default:
			stats.Enforced++
		}
		delete(failed, id)
	}
	stats.Failed += len(failed)
}

// inForce reports whether everything that plans and interfaces require for an endpoint is done.
func (v status) inForce(id model.EndpointID, ep *endpoint) bool {
	return ep.ensured == ep.ifindex && !v.endpoints.dirty[id] && v.plans.done()
}
