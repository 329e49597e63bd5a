package plan

import (
	"errors"
	"maps"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// Large policies take several plans, so that other changes are applied in between. The sets of a program are opened in
// parts: classes then distinguish their members, which affects no packet as long as no table refers to the sets. When the
// last set is open the table is made, and the endpoints are bound to it. Until then they keep their applied programs.

// ErrTooComplex says that a policy tells so many addresses apart, by so many ports, that no table of it is within the
// limits, and has too many rules to be judged by without one.
var ErrTooComplex = errors.New("too complex")

// Parts sets how many parts of large policies the next plans do that have no changes: more than one where a plan costs much, however
// little is in it; with 0 they rest, which is to leave large policies to later ones, as plans with changes do.
func (c *Compiler) Parts(n int) { c.pace.spread(n) }

// openSets opens the programs that have no table yet, those with the fewest sets left first: the names of their rules, then
// their sets. A plan that postpones large policies opens no rest of one either, since it would go on to make its table.
func (p *planner) openSets() {
	c := p.c
	var loads []part
	for _, prog := range c.programs.unopened() {
		if !c.pace.postpones() || prog.isUntouched() && p.fits(prog) {
			p.nameRules(prog)
			loads = p.openSetsOf(prog, loads)
		}
		p.More = p.More || !prog.isOpen()
	}
	if len(p.SetNames) > 0 {
		c.classes.Show(slices.Sorted(maps.Keys(p.SetNames))...)
	}
	for _, l := range loads {
		c.sets.apply(l)
	}
	if c.pace.first() {
		c.addrs.keepOld(c.sets.orphans())
		if c.classes.SomeUnknown() {
			c.sets.uses.noteLacking()
		}
		c.rules.forget()
		c.endpoints.forget()
	}
	c.classes.Local() // no local side is judged by these sets
}

// fits reports whether all that is left of a program can be opened in this plan.
func (p *planner) fits(prog *program) bool {
	left := p.toOpen - nameCost*(len(prog.IDs)-prog.named)
	for _, num := range prog.sets[prog.open:] {
		if left -= p.c.sets.costs(p.c.sets.use(num), left); left < 0 {
			return false
		}
	}
	return left >= 0
}

// nameRules makes the rules of a program known to the kernel.
func (p *planner) nameRules(prog *program) {
	rules := p.c.rules
	for ; p.toOpen > 0 && prog.named < len(prog.IDs); prog.named++ {
		num := prog.Rules[prog.named].Id
		if num == 0 || rules.Known(num) {
			continue
		}
		rules.SetKnown(num)
		if p.RuleNames == nil {
			p.RuleNames = map[uint32]model.RuleID{}
		}
		p.RuleNames[num] = prog.IDs[prog.named]
		p.toOpen -= nameCost
	}
}

// openSetsOf opens sets of a program. It adds the prefixes that become members to loads.
func (p *planner) openSetsOf(prog *program, loads []part) []part {
	for p.toOpen > 0 && prog.named == len(prog.IDs) && prog.open < len(prog.sets) {
		num := prog.sets[prog.open]
		u := p.c.sets.use(num)
		if !u.named || u.hidden {
			p.name(num)
			p.toOpen -= memberCost
		}
		var do []part
		p.toOpen, do = p.c.sets.open(num, u, p.toOpen, p.c.pace.first())
		loads = append(loads, do...)
		if !u.isOpen() {
			break
		}
		prog.open++
	}
	return loads
}

// name makes a set known to the kernel.
func (p *planner) name(set uint32) {
	u := p.c.sets.use(set)
	u.named, u.hidden = true, false
	if p.SetNames == nil {
		p.SetNames = map[uint32]model.SetID{}
	}
	p.SetNames[set] = p.c.sets.Key(set)
}

// Waiting reports whether the endpoint's desired policy takes more plans. Until then it keeps its applied policy. An
// endpoint without an applied policy is closed.
func (c *Compiler) Waiting() map[model.EndpointID]bool {
	all := c.assigned.allWaiting()
	maps.DeleteFunc(all, func(id model.EndpointID, _ bool) bool { return isShadow(id) })
	return all
}
