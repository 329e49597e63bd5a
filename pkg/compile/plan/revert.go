package plan

import (
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// revert gives the endpoint-directions that the plan was to bind to the program their previous program back.
func (s *assignment) revert(p *Plan, prog *program, err error) {
	for _, e := range s.endpoints.sorted() {
		for d := range e.applied.programs {
			at := EndpointDirection{e.id, model.Direction(d)}
			if e.desired.programs[d] == prog && s.waiting[e.id] { // for the other direction's; it is looked at again with that
				s.failures.bar(at, err)
				s.endpoints.markStale([]model.EndpointID{e.id})
				continue
			}
			if e.applied.programs[d] != prog {
				continue
			}
			s.failures.bar(at, err)
			prog.desired--
			s.ledger.release(accountOf(e.id), prog)
			old := e.prior[d]
			if s.isLacking(old) || old != nil && !s.outlives(old) { // see leaveLacking
				old = nil
			}
			e.desired.programs[d], e.applied.programs[d] = old, old
			if old != nil {
				old.desired++
				s.ledger.charge(accountOf(e.id), old)
				s.failures.keep(at)
				p.Rejudge = append(p.Rejudge, at) // it was not looked at when that was decided
			}
			s.rebind(p, e)
		}
	}
	prog.table = nil
}

// rebind makes the plan bind an endpoint to its applied programs. The plan does not bind an endpoint that has no
// program in one direction.
func (s *assignment) rebind(p *Plan, e *endpoint) {
	at := slices.IndexFunc(p.Bind, func(b Binding) bool { return b.Endpoint.ID == e.id })
	if e.applied.programs[0] != nil && e.applied.programs[1] != nil {
		if at >= 0 {
			p.Bind[at] = binding(e.applied.policy, e.applied.programs)
		}
		return
	}
	s.drop(e)
	e.applied.programs = [2]*program{}
	// It may be there still, with addresses that nothing is compiled for any more.
	if e.applied.policy != nil {
		e.applied.policy = nil
		p.Unbind = append(p.Unbind, e.id)
	}
	if at >= 0 {
		p.Bind = slices.Delete(p.Bind, at, at+1)
	}
}
