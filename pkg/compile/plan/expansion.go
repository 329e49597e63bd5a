package plan

import (
	"iter"

	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/model"
)

// expansion is an Expand that is taken some rules at a time. Numbers that it acquired are held until it ends.
type expansion struct {
	x     *match.Expander
	local *localAddrs
	sets  *setNumbers
	rules *ruleNumbers
	// Numbers that it holds.
	heldSets, heldRules numberSet
	next                func() (struct{}, bool)
	stop                func()
	plan                uint64 // the last in which an endpoint asked for it
	done                bool
}

// newExpansion begins to expand a policy for endpoints with the addresses of l, or such that make no difference.
func newExpansion(p *model.DirectionPolicy, l *localAddrs, sets *setNumbers, rules *ruleNumbers) *expansion {
	e := &expansion{local: &localAddrs{}, sets: sets, rules: rules}
	*e.local = *l
	e.x = match.NewExpander(p, e.local, e)
	e.next, e.stop = iter.Pull(func(yield func(struct{}) bool) {
		e.x.Pause = func() bool { return yield(struct{}{}) }
		e.x.Run(p)
		e.done = !e.x.Stopped
	})
	return e
}

// advance expands up to so many rules more, for an endpoint with the addresses of l, and returns how many are left of them.
func (e *expansion) advance(l *localAddrs, asked map[question]bool, most int) (left int) {
	*e.local = *l
	e.local.asked = asked
	e.x.Left = most
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
