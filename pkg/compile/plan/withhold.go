package plan

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
)

// fallback is what a Compiler needs to go back to what was in the kernel before the last plan.
type fallback struct {
	confirm bool
	rebound []*endpoint // that have a prior
	grown   []*program  // that have a before
	// barred are endpoint-directions whose policy the kernel had no room for, until it changes or Retry.
	barred map[EndpointDirection]error
	full   map[EndpointDirection]bytesUsed // of those that are barred by a limit: what was used then
	retry  bool                            // the next plan tries tables again that could not be published
}

// remember keeps what stale endpoints are judged by until the next plan.
func (c *Compiler) remember(stale []*endpoint) {
	if !c.back.confirm {
		return
	}
	for _, e := range stale {
		is, want := e.applied.programs, e.desired.programs
		if e.applied.policy == nil || want[0] == nil || is == want || is[0] == nil || is[1] == nil || c.waiting[e.id] {
			continue
		}
		if !e.sameAddrs() {
			continue
		}
		e.prior = e.applied.programs
		for _, prog := range e.prior {
			prog.kept++
		}
		c.back.rebound = append(c.back.rebound, e)
	}
}

// confirm ends that.
func (c *Compiler) confirm() {
	for _, e := range c.back.rebound {
		for _, prog := range e.prior {
			prog.kept--
		}
		e.prior = [2]*program{}
	}
	for _, prog := range c.back.grown {
		prog.before = nil
	}
	c.back.rebound, c.back.grown = nil, nil
}

// Withhold is called when tables of the last plan cannot be published, before any later field of the plan has been
// carried out, and says why. It returns what is left of the plan without them. An endpoint-direction that was to have
// such a table keeps the one it has, or is not bound if it has none; a table that was to have a larger one in its place
// stays, and denies what is of classes that it has no room for. All of these are Failed until their policy changes, or
// until a plan after Retry has done better.
func (c *Compiler) Withhold(p Plan, failed map[table.ID]error) Plan {
	for _, prog := range c.programs {
		if prog.table == nil || failed[prog.table.ID] == nil {
			continue
		}
		if slices.Contains(c.back.grown, prog) {
			prog.shrink(&p, failed[prog.table.ID])
		} else {
			c.revert(&p, prog, failed[prog.table.ID])
		}
	}
	c.noteFull()
	p.Tables = slices.DeleteFunc(p.Tables, func(t *table.Table) bool { return failed[t.ID] != nil })
	return p
}

// shrink goes back to the table that was there before a larger one.
func (prog *program) shrink(p *Plan, err error) {
	now, before := prog.table.ID, table.ID(0)
	prog.table, prog.before, prog.short = prog.before, nil, err
	if prog.table != nil {
		before = prog.table.ID
		p.DropTables = slices.DeleteFunc(p.DropTables, func(id table.ID) bool { return id == before })
		p.Rows = append(p.Rows, prog.shortRows(p.Classes)...)
	}
	for _, list := range [][]Binding{p.Grow, p.Bind} {
		for i := range list {
			for _, id := range []*table.ID{&list[i].Ingress, &list[i].Egress} {
				if *id == now {
					*id = before
				}
			}
		}
	}
}

// shortRows are the rows of new classes in a table that is too small for some of them, or was not built for them: where
// it has none, they are denied. A number may have been another class's before.
func (prog *program) shortRows(classes []classes.Class) []RowChange {
	var rows []RowChange
	if prog.table == nil || prog.table.Interpreted() {
		return nil
	}
	for _, class := range classes {
		row := uint16(0)
		if !prog.foreign { // else its rows have other numbers in the kernel
			row, _ = prog.table.Row(class)
		}
		if prog.table.SetRow(class.ID, row) {
			rows = append(rows, RowChange{prog.table.ID, class.ID, row})
		}
	}
	return rows
}

// revert gives the endpoint-directions that were to have the program back what they had.
func (c *Compiler) revert(p *Plan, prog *program, err error) {
	for _, e := range c.sorted() {
		for d := range e.applied.programs {
			at := EndpointDirection{e.id, model.Direction(d)}
			if e.desired.programs[d] == prog && c.waiting[e.id] { // for the other direction's; it is looked at again with that
				c.bar(at, err)
				c.stale[e.id] = true
				continue
			}
			if e.applied.programs[d] != prog {
				continue
			}
			c.bar(at, err)
			prog.desired--
			c.ledger.release(e.id.Namespace, prog)
			old := e.prior[d]
			e.desired.programs[d], e.applied.programs[d] = old, old
			if old != nil {
				old.desired++
				c.ledger.charge(e.id.Namespace, old)
				p.Rejudge = append(p.Rejudge, at) // it was not looked at when that was decided
			}
			c.rebind(p, e)
		}
	}
	prog.table = nil
}

// rebind makes the plan give an endpoint what it is bound to now; nothing, if it has no policy in one direction.
func (c *Compiler) rebind(p *Plan, e *endpoint) {
	at := slices.IndexFunc(p.Bind, func(b Binding) bool { return b.Endpoint.ID == e.id })
	if e.applied.programs[0] != nil && e.applied.programs[1] != nil {
		if at >= 0 {
			p.Bind[at] = binding(e.applied.policy, e.applied.programs)
		}
		return
	}
	for d, other := range e.desired.programs {
		if other != nil {
			other.desired--
			c.ledger.release(e.id.Namespace, other)
		}
		e.desired.programs[d], e.applied.programs[d] = nil, nil
	}
	// It may be there still, with addresses that nothing is compiled for any more.
	if e.applied.policy != nil {
		e.applied.policy = nil
		p.Unbind = append(p.Unbind, e.id)
	}
	if at >= 0 {
		p.Bind = slices.Delete(p.Bind, at, at+1)
	}
}

// Lose says that a table in the kernel is not what the plans make of it any more, because a row could not be written. No
// endpoint may be bound to it. A plan after Retry publishes it anew; until then its endpoints are Failed.
func (c *Compiler) Lose(id table.ID, err error) {
	for _, prog := range c.programs {
		if prog.table != nil && prog.table.ID == id {
			prog.table, prog.short = nil, err
		}
	}
}

// Short says that a table in the kernel has no room for some classes, because that could not be made. It denies what is of
// those, and its endpoints are Failed, until a plan after Retry publishes it anew.
func (c *Compiler) Short(id table.ID, err error) {
	for _, prog := range c.programs {
		if prog.table != nil && prog.table.ID == id {
			prog.short = err
		}
	}
}

// Retry makes the next Update try again what Withhold, Lose and Short were called for; of what a limit forbids, that for which
// there may be room by now. It reports whether there is anything, and whether something has to wait for room.
func (c *Compiler) Retry() (again, waits bool) {
	for _, prog := range c.programs {
		again = again || prog.short != nil
	}
	c.back.retry = again
	if len(c.back.barred) == 0 {
		return again, false
	}
	used := c.bytesUsed(nil)
	for at := range c.back.barred {
		namespace := at.Endpoint.Namespace
		if was, ok := c.back.full[at]; ok && used.node >= was.node && used.by[namespace] >= was.by[namespace] {
			waits = true
			continue
		}
		delete(c.back.barred, at)
		delete(c.back.full, at)
		c.stale[at.Endpoint] = true
		again = true
	}
	return again, waits
}

// bar keeps the policy of an endpoint-direction from being compiled again.
func (c *Compiler) bar(at EndpointDirection, err error) {
	c.failed[at], c.back.barred[at] = err, err
	if errors.Is(err, match.ErrOverLimit) {
		c.back.full[at] = bytesUsed{} // measured once all are barred
	}
}

// noteFull notes what is used, for those that were barred by a limit just now.
func (c *Compiler) noteFull() {
	var used bytesUsed
	for at, was := range c.back.full {
		if was.by != nil {
			continue
		}
		if used.by == nil {
			used = c.bytesUsed(nil)
		}
		c.back.full[at] = used
	}
}

// unbar lets an endpoint's policy be tried, because it is another.
func (c *Compiler) unbar(id model.EndpointID) {
	for d := range model.Direction(2) {
		delete(c.back.barred, EndpointDirection{id, d})
		delete(c.back.full, EndpointDirection{id, d})
	}
}

// Wider returns the endpoints that would allow something to a class that they deny to another, by id: those that must
// not be open while an address is taken for one of the first class and is of the second.
func (c *Compiler) Wider(taken, is uint32) []model.EndpointID {
	wide := map[*program]bool{}
	for _, prog := range c.programs {
		if c.narrows(prog, taken, is) {
			wide[prog] = true
		}
	}
	var ids []model.EndpointID
	if len(wide) == 0 {
		return nil
	}
	for _, e := range c.sorted() {
		if wide[e.applied.programs[0]] || wide[e.applied.programs[1]] {
			ids = append(ids, e.id)
		}
	}
	return ids
}

// Around returns the class that an address is taken for while its own entry is missing: that of the innermost prefix
// around it which has an entry and is not missing, too.
func (c *Compiler) Around(p netip.Prefix, missing func(netip.Prefix) bool) uint32 {
	return c.classes.Around(p, missing)
}

// Hold keeps the ids of classes from being given to others, from the next Update on and until the next call: something
// in the kernel still refers to them that could not be removed. The map must not be changed meanwhile.
func (c *Compiler) Hold(classes map[uint32]bool) { c.classes.Hold(classes) }
