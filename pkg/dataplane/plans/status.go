package plans

import (
	"iter"
	"slices"

	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
)

// beingMade is the status text of endpoints whose policy is so large that it takes several plans.
const beingMade = "the new policy is large and still being compiled"

// Bound is an endpoint that a dataplane has got from plans.
type Bound struct {
	ID       model.EndpointID
	Policy   *model.EndpointPolicy
	Ifindex  uint32 // of its interface; 0: it is not there
	Failure  string // why it is closed or not as desired; empty: it is not
	Enforced bool   // the dataplane has nothing left to do for it
}

// Statuses are the statuses of all endpoints, by id: of those that are bound, and of those whose first policy cannot be compiled or
// takes several plans. more adds what only the dataplane knows of one that is bound.
func (p *Planner) Statuses(bound iter.Seq[Bound], more func(*dataplane.EndpointStatus)) []dataplane.EndpointStatus {
	var list []dataplane.EndpointStatus
	making, failed := p.Compiler.Waiting(), p.failed()
	for b := range bound {
		s := dataplane.EndpointStatus{ID: b.ID, Iface: b.Policy.Iface, Addrs: b.Policy.Addrs, Ifindex: b.Ifindex}
		s.Condition, s.Reason = p.condition(b, failed[b.ID], making[b.ID])
		more(&s)
		list = append(list, s)
		delete(failed, b.ID)
		delete(making, b.ID)
	}
	for id := range making {
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

// failed are the reasons why policies cannot be compiled, by endpoint.
func (p *Planner) failed() map[model.EndpointID]string {
	failed := map[model.EndpointID]string{}
	for at, err := range p.Compiler.Failed() {
		if text := err.Error(); failed[at.Endpoint] < text { // of both directions always the same
			failed[at.Endpoint] = text
		}
	}
	return failed
}

// condition returns the condition of an endpoint with its reason. held is the reason why its policy cannot be compiled; empty: it
// can. making: another policy is being made for it.
func (p *Planner) condition(b Bound, held string, making bool) (dataplane.Condition, string) {
	switch {
	case held != "":
		if _, open := p.Compiler.Endpoint(b.ID); !open || b.Ifindex == 0 {
			return dataplane.Held, "closed: " + held
		}
		return dataplane.Held, "keeps its last policy: " + held
	case b.Failure != "":
		return dataplane.Failed, b.Failure
	case making:
		return dataplane.Pending, "keeps its last policy: " + beingMade
	case b.Ifindex == 0:
		return dataplane.NoInterface, "waiting for its interface"
	case len(b.Policy.Addrs) == 0:
		return dataplane.NoAddress, "it owns no address: all packets that it sends are dropped"
	case b.Enforced && p.Done():
		return dataplane.Enforced, ""
	}
	return dataplane.Pending, ""
}

// Count adds the numbers of failed, waiting and enforced endpoints to stats.
func (p *Planner) Count(bound iter.Seq[Bound], stats *dataplane.Stats) {
	failed := map[model.EndpointID]bool{}
	for at := range p.Compiler.Failed() {
		failed[at.Endpoint] = true
	}
	for b := range bound {
		switch {
		case b.Failure != "" || failed[b.ID]:
			stats.Failed++
		case b.Ifindex == 0 || !b.Enforced || !p.Done():
			stats.Waiting++
		default:
			stats.Enforced++
		}
		delete(failed, b.ID)
	}
	stats.Failed += len(failed)
}
