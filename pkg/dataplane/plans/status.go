package plans

import (
	"iter"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/compile/plan"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
)

// beingMade is the status text of endpoints whose policy is so large that it takes several plans.
const beingMade = "the new policy is large and still being compiled"

// behindText is the status text of endpoints whose policy is compiled or about to be, but not written.
const behindText = "its newest policy is not in force yet"

// Bound is an endpoint that a dataplane has got from plans.
type Bound struct {
	ID       model.EndpointID
	Policy   *model.EndpointPolicy
	Ifindex  uint32 // of its interface; 0: it is not there
	Failure  string // why it is closed or not as desired; empty: it is not
	Enforced bool   // the dataplane has nothing left to do for it
}

// Statuses are the statuses of all endpoints, by id: of those that are bound, and of those whose first policy cannot be compiled,
// takes several plans or is not written. more adds what only the dataplane knows of one that is bound. The next call writes over the
// list: each attempt asks for it, however little it has done.
func (p *Planner) Statuses(bound iter.Seq[Bound], more func(*dataplane.EndpointStatus)) []dataplane.EndpointStatus {
	list := p.statuses[:0]
	making, failed, behind := p.Compiler.Waiting(), p.failed(), p.behind()
	for b := range bound {
		list = append(list, dataplane.EndpointStatus{ID: b.ID, Iface: b.Policy.Iface, Addrs: b.Policy.Addrs, Ifindex: b.Ifindex})
		s := &list[len(list)-1]
		s.Condition, s.Reason = p.condition(b, failed[b.ID], making[b.ID])
		if behind[b.ID] || s.Condition == dataplane.Pending && s.Reason == "" && !b.Enforced {
			s.NotInForce = p.notInForce()
		}
		s.StagedPending = behind[b.ID.Shadow()]
		more(s)
		delete(failed, b.ID)
		delete(making, b.ID)
		delete(behind, b.ID)
	}
	for id := range making {
		if failed[id] == "" {
			list = append(list, dataplane.EndpointStatus{ID: id, Condition: dataplane.Pending, Reason: "closed: " + beingMade})
		}
	}
	for id := range behind {
		named := id.Namespace != "" // it is no stand-in for what an earlier agent has programmed
		if failed[id] == "" && !making[id] && named && id.Kind == model.WorkloadEndpoint {
			list = append(list, dataplane.EndpointStatus{ID: id, Condition: dataplane.Pending, NotInForce: p.notInForce()})
		}
	}
	for id, text := range failed {
		list = append(list, dataplane.EndpointStatus{ID: id, Condition: dataplane.Held, Reason: "closed: " + text})
	}
	clear(p.statuses[min(len(list), len(p.statuses)):]) // of endpoints that are gone
	p.statuses = list
	slices.SortFunc(list, func(a, b dataplane.EndpointStatus) int { return a.ID.Compare(b.ID) })
	return list
}

// behind are the endpoints, shadows among them, whose newest policy waits for what a failed attempt has left to be written. Without such an
// attempt there are none, and the question costs nothing.
func (p *Planner) behind() map[model.EndpointID]bool {
	if p.Done() && len(p.Waiting) == 0 {
		return nil
	}
	return plan.Remainder{Plan: p.Plan, Moved: p.Step >= p.steps.Moved, Bound: p.Step >= p.steps.Bound, Rejudged: p.Step >= p.steps.Rejudged,
		Waiting: p.Waiting}.Endpoints(p.Compiler)
}

// notInForce is the status text of endpoints that are behind, with the error of the last attempt.
func (p *Planner) notInForce() string {
	if p.err == nil {
		return behindText
	}
	return behindText + ": " + strings.ReplaceAll(p.err.Error(), "\n", "; ")
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
