package plan

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// Large policies take several plans, so that the changes of others go on meanwhile. The sets of a program are opened in
// parts: classes tell their members apart, which means nothing to any packet as long as no table refers to the sets. With
// the last of them the table is made, and the endpoints are bound to it. Until then they keep what judges them.

// ErrTooComplex says that a policy tells so many addresses apart, by so many ports, that no table of it is within the
// limits, and has too many rules to be judged by without one.
var ErrTooComplex = errors.New("too complex")

// MaxOpen is how much policies can open in one plan, and how much of what they leave over is cleaned up: the name of a rule
// is 1, the name of a set and a prefix in a CIDR list are 4 each. Such a plan takes the agent some 10 ms. The first plan
// opens all there is.
const MaxOpen = 1024

const (
	nameCost   = 1
	memberCost = 4 // of a set's name and of each prefix
)

// Rest says whether the next plans leave what is large to later ones, also if they have no changes.
func (c *Compiler) Rest(rest bool) { c.resting = rest }

// share says how much the plan may open and clean up. One with changes leaves what is large to the next, so that nobody
// whose policy it changes waits for it; and what has to be cleaned up does not grow while there is something to open.
func (p *planner) share(changed bool) {
	most := cmp.Or(p.c.limits.Open, MaxOpen)
	p.c.whole = (changed || p.c.resting) && p.c.planned
	switch {
	case !p.c.planned:
		p.toOpen, p.toClose = math.MaxInt32, math.MaxInt32
	case p.c.whole:
		p.toOpen, p.toClose = most, max(most/4, 1)
	case len(p.c.sets.review) > 0:
		p.toOpen, p.toClose = max(most/2, 1), max(most/2, 1)
	default:
		p.toOpen, p.toClose = most, most
	}
	p.c.plans++
	p.c.toExpand = most
	if !p.c.planned {
		p.c.toExpand = math.MaxInt32
	}
}

// openSets opens the programs that have no table yet, those with the fewest sets left first: the names of their rules, then
// their sets.
func (p *planner) openSets() {
	c := p.c
	var loads []part
	for _, prog := range c.unopened() {
		if !p.c.whole || p.fits(prog) {
			p.nameRules(prog)
			loads = p.openSetsOf(prog, loads)
		}
		p.More = p.More || !prog.isOpen()
	}
	c.classes.Show(slices.Sorted(maps.Keys(p.SetNames))...)
	for _, l := range loads {
		c.sets.join(l.set, l.prefixes)
	}
	if !c.planned {
		c.addrs.keepOld(c.sets.orphans())
		c.rules.forget()
		clear(c.ifaces)
	}
	c.classes.Local() // no local side is judged by these sets
}

// isOpen reports whether a table of the program can be made.
func (prog *program) isOpen() bool { return prog.named == len(prog.IDs) && prog.open == len(prog.sets) }

// fits reports whether all that is left of a program can be opened in this plan.
func (p *planner) fits(prog *program) bool {
	left := p.toOpen - nameCost*(len(prog.IDs)-prog.named)
	for _, num := range prog.sets[prog.open:] {
		if left -= p.c.sets.use(num).toOpen(); left < 0 {
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

// openSetsOf opens sets of a program, and adds what is to become members to loads.
func (p *planner) openSetsOf(prog *program, loads []part) []part {
	for p.toOpen > 0 && prog.named == len(prog.IDs) && prog.open < len(prog.sets) {
		num := prog.sets[prog.open]
		u := p.c.sets.use(num)
		if !u.named {
			p.name(num)
			p.toOpen -= memberCost
		}
		members := u.next((p.toOpen + memberCost - 1) / memberCost)
		loads = append(loads, part{num, members})
		p.toOpen -= len(members) * memberCost
		if u.joined == len(u.nets) {
			prog.open++
		} else if len(members) == 0 {
			break
		}
	}
	return loads
}

// part is some prefixes of a CIDR list.
type part struct {
	set      uint32
	prefixes []netip.Prefix
}

// name makes a set known to the kernel.
func (p *planner) name(set uint32) {
	p.c.sets.use(set).named = true
	if p.SetNames == nil {
		p.SetNames = map[uint32]model.SetID{}
	}
	p.SetNames[set] = p.c.sets.Key(set)
}

// unopened are the programs that have no table yet, those with the fewest sets left to be opened first.
func (c *Compiler) unopened() []*program {
	var list []*program
	for _, prog := range c.programs {
		if prog.toCome() && prog.desired > 0 {
			list = append(list, prog)
		}
	}
	slices.SortStableFunc(list, func(a, b *program) int {
		return cmp.Compare(len(a.sets)-a.open, len(b.sets)-b.open)
	})
	return list
}

// admit makes the tables of the programs whose sets are open. Those that are past a limit are refused.
func (p *planner) admit() {
	for _, prog := range p.c.unopened() {
		switch {
		case !prog.isOpen():
		case p.build(prog):
			p.fresh[prog] = true
		default:
			p.refuse(prog)
		}
	}
}

// refuse takes a program away from the endpoints that were to have it: they keep what they have.
func (p *planner) refuse(prog *program) {
	c, err := p.c, tooComplex(prog)
	for _, f := range c.folds {
		for _, v := range f.variants {
			if v.program == prog {
				v.program, v.err = nil, err
			}
		}
	}
	for _, e := range c.sorted() {
		if e.desired.programs[0] == prog || e.desired.programs[1] == prog {
			c.release(e)
			c.target(e)
		}
	}
}

func tooComplex(prog *program) error {
	return fmt.Errorf("compile %s policy of %d rules and %d sets of addresses: %w", prog.direction, len(prog.Rules), len(prog.sets),
		ErrTooComplex)
}

// limitReached notes that endpoints are judged by a table that lacks what has come to be known since it was made.
func (c *Compiler) limitReached(prog *program) {
	for _, e := range c.endpoints {
		for d := range e.desired.programs {
			if e.desired.programs[d] == prog {
				c.failed[EndpointDirection{e.id, model.Direction(d)}] = outgrown(prog)
			}
		}
	}
}

// outgrown says what is wrong with a program that is limited.
func outgrown(prog *program) error {
	return fmt.Errorf("addresses in other combinations of its sets than it was made for are denied: %w", tooComplex(prog))
}

// wait finds the endpoints that are to have a program that has no table yet.
func (p *planner) wait() {
	c := p.c
	for _, prog := range c.programs {
		prog.awaited = false
	}
	for id := range c.waiting {
		if !slices.ContainsFunc(p.stale, func(e *endpoint) bool { return e.id == id }) {
			p.stale = append(p.stale, c.endpoints[id])
		}
	}
	clear(c.waiting)
	slices.SortFunc(p.stale, func(a, b *endpoint) int { return a.id.Compare(b.id) })
	for _, e := range p.stale {
		if !c.part[e.id] && (e.desired.programs[0] == nil || !e.desired.programs[0].toCome() && !e.desired.programs[1].toCome()) {
			continue
		}
		c.waiting[e.id] = true
		for _, prog := range e.applied.programs {
			if prog != nil {
				prog.awaited = true
			}
		}
	}
}

// toCome reports whether the program has no table because its sets are not open yet.
func (prog *program) toCome() bool { return prog.table == nil && prog.short == nil }

// Waiting reports whether what the endpoint is to have takes more plans. Until then it keeps what it has; without anything
// it is closed.
func (c *Compiler) Waiting() map[model.EndpointID]bool { return maps.Clone(c.waiting) }
