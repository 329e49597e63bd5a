package plan

import (
	"iter"

	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/model"
)

// expansion is an Expand that is taken some rules at a time. What it has numbered keeps its number until it ends.
type expansion struct {
	c     *Compiler
	x     *match.Expander
	local *localAddrs
	sets  map[uint32]bool // held
	rules map[uint32]bool
	next  func() (struct{}, bool)
	stop  func()
	plan  uint64 // the last in which an endpoint asked for it
	done  bool
}

// newExpansion begins to expand a policy for endpoints with the addresses of l, or such that make no difference.
func (c *Compiler) newExpansion(p *model.DirectionPolicy, l *localAddrs) *expansion {
	e := &expansion{c: c, local: &localAddrs{}, sets: map[uint32]bool{}, rules: map[uint32]bool{}}
	*e.local = *l
	e.x = match.NewExpander(p, e.local, e)
	e.next, e.stop = iter.Pull(func(yield func(struct{}) bool) {
		e.x.Pause = func() bool { return yield(struct{}{}) }
		e.x.Run(p)
		e.done = !e.x.Stopped
	})
	return e
}

// goOn expands up to so many rules more, for an endpoint with the addresses of l, and returns how many are left of them.
func (e *expansion) goOn(l *localAddrs, asked map[question]bool, most int) (left int) {
	*e.local = *l
	e.local.asked = asked
	e.x.Left = most
	e.next()
	return max(e.x.Left, 0)
}

// end gives back the numbers that nothing else holds.
func (e *expansion) end() {
	e.stop()
	for num := range e.sets {
		e.c.sets.Drop(num)
	}
	for num := range e.rules {
		e.c.rules.Drop(num)
	}
}

// Set implements Numbers.
func (e *expansion) Set(id model.SetID) uint32 {
	num := e.c.sets.number(id)
	if !e.sets[num] {
		e.sets[num] = true
		e.c.sets.Hold(num)
	}
	return num
}

// Rule implements Numbers.
func (e *expansion) Rule(id model.RuleID) uint32 {
	num := e.c.rules.number(id)
	if !e.rules[num] {
		e.rules[num] = true
		e.c.rules.Hold(num)
	}
	return num
}

// prepare expands the policies of an endpoint, as far as this plan may. False: there is more to do.
func (c *Compiler) prepare(e *endpoint, l *localAddrs) (ready bool) {
	if e.desired.policy == nil {
		return true
	}
	ready = true
	for d, f := range e.desired.folds {
		if c.back.barred[EndpointDirection{e.id, model.Direction(d)}] != nil {
			continue
		}
		ready = c.prepareFor(f, l, e.id.Namespace) && ready
		for _, a := range l.more {
			other := *l
			other.set(a)
			ready = c.prepareFor(f, &other, e.id.Namespace) && ready
		}
	}
	return ready
}

// prepareFor does so for one direction and the first address of each family.
func (c *Compiler) prepareFor(f *fold, l *localAddrs, namespace string) (ready bool) {
	v := f.variant(l)
	if v.program != nil || v.err != nil || v.cost != (Cost{}) && c.ledger.room(namespace, v.cost) != nil {
		return true
	}
	if v.making == nil {
		v.making = c.newExpansion(f.policy, l)
		c.making[v] = true
	}
	v.making.plan = c.plans
	if !v.making.done && (!c.whole || match.EntriesOf(f.policy) <= c.toExpand) {
		c.toExpand = v.making.goOn(l, v.answers, c.toExpand)
	}
	return v.making.done
}

// abandon ends the expansions that no endpoint has asked for in this plan.
func (c *Compiler) abandon() {
	for v := range c.making {
		if v.making == nil || v.making.plan == c.plans {
			continue
		}
		v.making.end()
		v.making = nil
	}
	for v := range c.making {
		if v.making == nil {
			delete(c.making, v)
		}
	}
}
