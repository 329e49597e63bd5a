package compile

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

// MaxOpen is how many CIDR lists and prefixes of them policies can add in one plan; the first plan adds all there are. A
// plan of that size takes the agent some 20 to 50 ms.
const MaxOpen = 2048

// openSets opens sets of the programs that have no table yet, of the one with the fewest left first.
func (p *planner) openSets() {
	c := p.c
	quota := cmp.Or(c.limits.Open, MaxOpen)
	if !c.planned {
		quota = math.MaxInt
	}
	var loads []part
	for _, prog := range c.unopened() {
		for quota > 0 && prog.open < len(prog.sets) {
			u := c.use(prog.sets[prog.open])
			if !u.named {
				p.name(prog.sets[prog.open])
				quota--
			}
			n := min(max(quota, 0), len(u.nets))
			loads = append(loads, part{prog.sets[prog.open], u.nets[:n]})
			u.nets = u.nets[n:]
			if quota -= n; len(u.nets) == 0 {
				prog.open++
			}
		}
		p.More = p.More || prog.open < len(prog.sets)
	}
	c.classes.Show(slices.Sorted(maps.Keys(p.SetNames))...)
	for _, l := range loads {
		c.join(l.set, l.prefixes)
	}
	c.keepOld()
	c.classes.Local() // no local side is judged by these sets
	if len(c.ruleNames) > 0 {
		p.RuleNames = c.ruleNames
		c.ruleNames = map[uint32]model.RuleID{}
	}
}

// part is some prefixes of a CIDR list.
type part struct {
	set      uint32
	prefixes []netip.Prefix
}

// name makes a set known to the kernel.
func (p *planner) name(set uint32) {
	p.c.use(set).named = true
	if p.SetNames == nil {
		p.SetNames = map[uint32]model.SetID{}
	}
	p.SetNames[set] = p.c.sets.keys[set]
}

// unopened are the programs that have no table yet, those with the fewest sets left to be opened first.
func (c *Compiler) unopened() []*program {
	var list []*program
	for _, prog := range c.programs {
		if prog.toCome() && prog.want > 0 {
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
		case prog.open < len(prog.sets):
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
		if e.want[0] == prog || e.want[1] == prog {
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
		for d := range e.want {
			if e.want[d] == prog {
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
		if e.want[0] == nil || !e.want[0].toCome() && !e.want[1].toCome() {
			continue
		}
		c.waiting[e.id] = true
		for _, prog := range e.bound {
			if prog != nil {
				prog.awaited = true
			}
		}
	}
}

// toCome reports whether the program has no table because its sets are not open yet.
func (prog *program) toCome() bool { return prog.table == nil && prog.short == nil }

// Waiting reports whether what the endpoint shall have takes more plans. Until then it keeps what it has; without anything
// it is closed.
func (c *Compiler) Waiting() map[model.EndpointID]bool { return maps.Clone(c.waiting) }
