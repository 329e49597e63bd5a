package bpf

import (
	"errors"
	"fmt"

	"github.com/margay-project/margay/pkg/compile/plan"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
)

// The steps of a plan that say which tables judge an endpoint.

// bind gives endpoints the tables the plan says. A direction with another table, or of an endpoint with other addresses,
// gets a new generation, so that its live flows are judged again. Shadows have none: they only mark their workload.
func (e *endpoints) bind(list []plan.Binding) error {
	for _, b := range list {
		if workload, ok := workloadOf(b.Endpoint.ID); ok {
			e.staged.set(workload, b)
			e.dirty[workload] = true
			continue
		}
		ep := e.roster.record(b.Endpoint)
		moved := e.entries.readdressed(ep, b.Endpoint)
		if ep.ifindex != 0 { // it is about to have them
			e.kernel.heirs.claim(ep.ifindex, b.Endpoint.Addrs)
		}
		ep.policy = b.Endpoint
		for dir, id := range [2]table.ID{b.Ingress, b.Egress} {
			if ep.tables[dir] == id && ep.gens[dir] != 0 && !ep.unasked && !moved {
				continue
			}
			gen, err := e.kernel.gens.Next()
			if err != nil {
				return err
			}
			ep.tables[dir], ep.gens[dir] = id, gen
			if ep.number == 0 {
				ep.number = gen
			}
		}
		ep.unasked = false
		e.dirty[b.Endpoint.ID] = true
	}
	return e.update()
}

// narrow removes further sources that endpoints lose. It runs before addresses move: an address may lose its owner in the
// move, and a source still listed could then send from it.
func (e *endpoints) narrow(p plan.Plan) error {
	var errs []error
	for _, b := range p.Bind {
		if ifindex := e.roster.interfaceOf(b.Endpoint.ID, p.Bind); ifindex != 0 {
			errs = append(errs, e.sources.narrow(ifindex, b.Endpoint.Sources))
		}
	}
	for _, id := range p.Unbind {
		if ep := e.roster.bound[id]; ep != nil && ep.ifindex != 0 {
			errs = append(errs, e.sources.narrow(ep.ifindex, nil))
		}
	}
	return errors.Join(errs...)
}

// bar closes all further sources, or opens them again.
func (e *endpoints) bar(now bool) error {
	if changed := e.sources.bar(now); !changed {
		return nil
	}
	for id, ep := range e.roster.bound {
		if ep.policy != nil && len(ep.policy.Sources) > 0 {
			e.dirty[id] = true
		}
	}
	return e.update()
}

// update writes the endpoints that are in the kernel already: the order of the steps matters to them. Whatever else
// they need, and all others, is done by program. One that cannot be written is closed: the tables that it refers to are
// about to go.
func (e *endpoints) update() error {
	errs := []error{e.leave()}
	for _, id := range e.dirtyIDs() {
		ep := e.roster.bound[id]
		if ep == nil || ep.policy == nil || ep.ifindex == 0 {
			continue
		}
		if err := e.entries.write(ep, ep.ifindex); err != nil {
			errs = append(errs, e.shut(ep, err))
		}
	}
	return errors.Join(errs...)
}

// rewrite writes all endpoints that are in the kernel again. An endpoint that needed no write before needs none afterwards.
func (e *endpoints) rewrite() error {
	var clean []model.EndpointID
	for id, ep := range e.roster.bound {
		if ep.policy != nil && ep.ifindex != 0 && !e.dirty[id] {
			e.dirty[id] = true
			clean = append(clean, id)
		}
	}
	if err := e.update(); err != nil {
		return err
	}
	for _, id := range clean {
		delete(e.dirty, id)
	}
	return nil
}

// grow binds endpoints to tables with the same policy and more rows. Their flows need no new judgement.
func (e *endpoints) grow(list []plan.Binding) error {
	var errs []error
	for _, b := range list {
		if workload, ok := workloadOf(b.Endpoint.ID); ok {
			e.staged.set(workload, b)
			if ep := e.roster.bound[workload]; ep != nil && ep.ifindex != 0 {
				e.staged.write(workload, ep.ifindex)
			}
			continue
		}
		ep := e.roster.record(b.Endpoint)
		ep.tables = [2]table.ID{b.Ingress, b.Egress}
		errs = append(errs, e.flip(ep))
		if ep.ifindex == 0 {
			e.dirty[b.Endpoint.ID] = true // it may have been closed for want of this table
		}
	}
	return errors.Join(errs...)
}

// announce notes in the kernel that addresses are about to move which live flows were allowed for. Should this agent
// die before they are judged again, the next one has all of them judged again.
func (e *endpoints) announce(list []plan.EndpointDirection) error {
	if len(list) == 0 {
		return nil
	}
	return e.kernel.gens.Announce()
}

// rejudge has the live flows of endpoint-directions judged again.
func (e *endpoints) rejudge(list []plan.EndpointDirection) error {
	var errs []error
	for _, j := range list {
		ep := e.roster.bound[j.Endpoint]
		if ep == nil {
			continue
		}
		gen, err := e.kernel.gens.Next()
		if err != nil {
			return err
		}
		ep.gens[j.Direction] = gen
		errs = append(errs, e.flip(ep))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return e.kernel.gens.Done()
}

// rejudgeWhere has the live flows judged again of the directions of endpoints that are meant, with the next write of each. Those in also are
// written again as well.
func (e *endpoints) rejudgeWhere(meant func(id model.EndpointID, judgedBy table.ID) bool, also ...model.EndpointID) error {
	for _, id := range also {
		if e.roster.bound[id] != nil {
			e.dirty[id] = true
		}
	}
	for id, ep := range e.roster.bound {
		for dir, t := range ep.tables {
			if !meant(id, t) {
				continue
			}
			gen, err := e.kernel.gens.Next()
			if err != nil {
				return err
			}
			ep.gens[dir] = gen
			e.dirty[id] = true
		}
	}
	return nil
}

func (e *endpoints) unbind(list []model.EndpointID) error {
	var errs []error
	for _, id := range list {
		if workload, ok := workloadOf(id); ok {
			e.staged.drop(workload)
			if e.roster.bound[workload] != nil {
				e.dirty[workload] = true
			}
			continue
		}
		ep := e.roster.bound[id]
		if ep == nil {
			continue
		}
		number := ep.ifindex
		if err := e.withdraw(ep); err != nil {
			errs = append(errs, fmt.Errorf("endpoint %s: %w", id, err))
			continue
		}
		if number != 0 {
			e.kernel.heirs.lost(number)
		}
		if ep.policy != nil {
			e.kernel.heirs.left(ep.policy.Addrs)
		}
		e.roster.remove(id)
		delete(e.dirty, id)
	}
	return errors.Join(errs...)
}
