package plan

import (
	"iter"
	"net/netip"

	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/model"
)

// expansion is an Expand that is taken some rules at a time, and what is worked out of its Program for a program. Numbers that it acquired
// are held until it ends.
type expansion struct {
	x     *match.Expander
	made  *program         // once it is done; nil: err says why not
	lists [][]netip.Prefix // of made: see setNumbers.listsOf
	err   error
	local *localAddrs
	sets  *setNumbers
	rules *ruleNumbers
	// Numbers that it holds.
	heldSets, heldRules numberSet
	next                func() (struct{}, bool)
	stop                func()
	plan                uint64 // the last in which an endpoint asked for it
	whole               bool   // it makes no break once all rules are expanded
	done                bool
}

// itemCost is how many prefixes or numbers are worked with at the cost of expanding one rule.
const itemCost = 8

// newExpansion begins to expand a policy for endpoints with the addresses of l, or such that make no difference.
func newExpansion(p *model.DirectionPolicy, l *localAddrs, sets *setNumbers, rules *ruleNumbers) *expansion {
	e := &expansion{local: &localAddrs{}, sets: sets, rules: rules}
	*e.local = *l
	e.x = match.NewExpander(p, e.local, e)
	e.next, e.stop = iter.Pull(func(yield func(struct{}) bool) {
		e.x.Pause = func() bool { return yield(struct{}{}) }
		if e.x.Run(p); !e.x.Stopped {
			e.finish(p)
		}
		e.done = !e.x.Stopped
	})
	return e
}

// finish works out what a program has besides the rules, which for a large one takes longer than a plan may.
func (e *expansion) finish(p *model.DirectionPolicy) {
	made, err := e.x.Result(p)
	if err != nil {
		e.err = err
		return
	}
	cost, ok := costOf(made, e.spend)
	if !ok {
		return
	}
	prog := newProgram(p.Direction, made)
	prog.cost = cost
	if e.lists, ok = e.sets.listsOf(made, prog.sets, e.spend); ok {
		e.made = prog
	}
}

// spend is a spender.
func (e *expansion) spend(items int) bool {
	if e.whole {
		return true
	}
	e.x.Left -= items / itemCost
	e.x.Stopped = e.x.Stopped || e.x.Left <= 0 && !e.x.Pause()
	return !e.x.Stopped
}

// advance expands up to so many rules more, for an endpoint with the addresses of l, and returns how many are left of them. whole: once
// all rules are expanded, it does not stop before it is done.
func (e *expansion) advance(l *localAddrs, asked map[question]bool, most int, whole bool) (left int) {
	*e.local = *l
	e.local.asked = asked
	e.x.Left, e.whole = most, whole
	e.next()
	return max(e.x.Left, 0)
}

// end releases the numbers that nothing else holds.
func (e *expansion) end() {
	e.stop()
	for num := range e.heldSets.all() {
		e.sets.Drop(num)
	}
	for num := range e.heldRules.all() {
		e.rules.Drop(num)
	}
}

// Set implements Numbers.
func (e *expansion) Set(id model.SetID) uint32 {
	num := e.sets.number(id)
	if e.heldSets.add(num) {
		e.sets.Hold(num)
	}
	return num
}

// Rule implements Numbers.
func (e *expansion) Rule(id model.RuleID) uint32 {
	num := e.rules.number(id)
	if e.heldRules.add(num) {
		e.rules.Hold(num)
	}
	return num
}
