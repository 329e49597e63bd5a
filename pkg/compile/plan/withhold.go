package plan

import (
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
)

// Withhold is called when tables of the last plan cannot be published, before any later field of the plan has been
// carried out, and says why. It returns the rest of the plan without them. An endpoint-direction that was to get such a
// table keeps its applied table, or is not bound if it has none. A table that a larger one was to replace stays, and
// denies packets of the classes that it has no room for. All of these are Failed until their policy changes, or until a
// plan after Retry succeeds.
func (c *Compiler) Withhold(p Plan, failed map[table.ID]error) Plan {
	for _, prog := range c.programs.all() {
		if prog.table == nil || failed[prog.table.ID] == nil {
			continue
		}
		if c.back.hasGrown(prog) {
			prog.shrink(&p, failed[prog.table.ID])
		} else {
			c.assigned.revert(&p, prog, failed[prog.table.ID])
		}
	}
	for _, prog := range c.back.allGrown() {
		if prog.gone && prog.table != nil && failed[prog.table.ID] != nil { // it judges until Bind
			now := prog.table.ID
			prog.shrink(&p, failed[now])
			p.DropTables = slices.DeleteFunc(p.DropTables, func(id table.ID) bool { return id == now })
			if prog.table != nil {
				p.DropTables = append(p.DropTables, prog.table.ID)
			}
		}
	}
	slices.Sort(p.DropTables)
	c.failures.noteFull(c.endpoints.allBytesUsed)
	p.Tables = slices.DeleteFunc(p.Tables, func(t *table.Table) bool { return failed[t.ID] != nil })
	return p
}

// MarkBroken says that a table in the kernel is not what the plans make of it any more, because a row could not be written. No
// endpoint may be bound to it. A plan after Retry publishes it again; until then its endpoints are Failed.
func (c *Compiler) MarkBroken(id table.ID, err error) {
	if prog := c.programs.of(id); prog != nil {
		prog.table, prog.short = nil, err
	}
}

// MarkFull reports that a table in the kernel has no room for some classes, because the room could not be made. The table
// denies packets of those classes, and its endpoints are Failed, until a plan after Retry publishes it again.
func (c *Compiler) MarkFull(id table.ID, err error) {
	if prog := c.programs.of(id); prog != nil {
		prog.short = err
	}
}

// Retry makes the next Update try again the tables that Withhold, MarkBroken and MarkFull were called for, and the policies that a
// limit barred if there may be room for them by now. again: there is something to try. waits: a policy still has to wait for
// room.
func (c *Compiler) Retry() (again, waits bool) {
	again = slices.ContainsFunc(c.programs.all(), func(prog *program) bool { return prog.short != nil })
	c.back.retryTables(again)
	freed, waits := c.failures.retry(c.endpoints.allBytesUsed)
	c.endpoints.markStale(freed)
	return again || len(freed) > 0, waits
}

// Wider returns the endpoints that would allow something to a class that they deny to another, by id: those that must
// not be open while an address is taken for one of the first class and is of the second.
func (c *Compiler) Wider(taken, is uint32) []model.EndpointID {
	wide := c.programs.narrowing(taken, is)
	var ids []model.EndpointID
	if len(wide) == 0 {
		return nil
	}
	for _, e := range c.endpoints.sorted() {
		if isShadow(e.id) {
			continue
		}
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
// in the kernel still refers to them that could not be removed. Only Update reads the map, which is the caller's: one that adds to it between
// Hold and Update holds these, too.
func (c *Compiler) Hold(classes map[uint32]bool) { c.classes.Hold(classes) }
