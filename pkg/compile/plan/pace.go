package plan

import (
	"cmp"
	"math"
)

// MaxOpen bounds the units that the policies of one plan with changes can open: the name of a rule is 1, the name of a set and
// a prefix in a CIDR list are 4 each. A plan that goes on with large policies opens half as many, or cleans up as many: that
// takes the agent some 5 ms, and a change that comes in meanwhile waits for it. Compiler.Parts makes that a multiple. The first plan opens everything.
const MaxOpen = 1024

// mostParts is how many parts of large policies one plan does at most.
const mostParts = 1024

// mostLeft is how many sets may wait to be cleaned up before plans open less than they clean up: as many as one policy leaves
// at most. Else policies that change all the time would leave more than is cleaned up, until a map is full. With twice as many,
// plans with changes clean up, too.
const mostLeft = 16384

// manyLeft is how many sets may wait to be cleaned up for a plan with changes to clean up some: those of small policies.
const manyLeft = 64

const (
	nameCost   = 1
	memberCost = 4 // of a set's name and of each prefix
)

// pace says how much of large policies each plan may do.
type pace struct {
	limit     int    // see table.Limits.Open
	limitPart int    // see table.Limits.Part
	limitMake int    // see table.Limits.Make
	resting   bool   // see Compiler.Parts
	parts     int    // see Compiler.Parts; 0, unless plans rest, is 1
	plans     uint64 // how many were begun, the present one included
	whole     bool   // the present plan has changes, or rests: it leaves large policies to a later one
	toExpand  int    // so many rules it may still expand
	work      Work   // of the present plan
}

// first reports whether no plan was begun before the present one.
func (p *pace) first() bool { return p.plans <= 1 }

// next begins a plan, while so many sets are to be cleaned up. It returns how much the plan may open and clean up. A plan
// with changes leaves large policies and cleaning up to the next one, so that no endpoint whose policy changes waits for them.
// While there is something to open, the number of sets to clean up does not grow.
func (p *pace) next(changed bool, toClean int) (toOpen, toClose int) {
	p.plans++
	p.work = Work{}
	most := cmp.Or(p.limit, MaxOpen)
	p.whole = (changed || p.resting) && !p.first()
	p.toExpand = most
	if !p.whole { // else so many are the most that a policy may have which is not left to a later plan
		p.toExpand = max(most/2, 1) * p.times()
	}
	part := cmp.Or(p.limitPart, max(most/2, 1)) * p.times()
	switch {
	case p.first():
		p.toExpand = math.MaxInt32
		return math.MaxInt32, math.MaxInt32
	case p.whole && toClean > 2*mostLeft:
		return most, most
	case changed && toClean > manyLeft:
		return most, 0
	case changed:
		return most, max(most/4, 1)
	case p.whole: // other cleaning up waits for a plan that does not rest
		return most, max(most/32, 1)
	case toClean > mostLeft:
		return max(part/4, 1), part
	case toClean > 0:
		return max(part/2, 1), max(part/2, 1)
	}
	return part, part
}

// toMake is how much of tables the present plan may make. Those of small policies are all made in the plan that has their
// changes, unless there are a great many.
func (p *pace) toMake() int {
	most := cmp.Or(p.limitMake, MaxMake)
	switch {
	case p.first():
		return math.MaxInt
	case p.whole:
		return 8 * most
	}
	return most * p.times()
}

// times is how many parts of large policies the present plan does.
func (p *pace) times() int {
	if p.whole {
		return 1
	}
	return min(max(p.parts, 1), mostParts)
}

// spread says how many parts plans do from the next on; 0: they rest.
func (p *pace) spread(parts int) { p.resting, p.parts = parts == 0, parts }

// postpones reports whether the present plan leaves large policies to a later one.
func (p *pace) postpones() bool { return p.whole }

// plan is the number of the present plan.
func (p *pace) plan() uint64 { return p.plans }

// mayExpand reports whether a policy of so many rules may be expanded in the present plan, or a part of it.
func (p *pace) mayExpand(rules int) bool { return !p.whole || rules <= p.toExpand }

// expand continues an expansion as far as the present plan may.
func (p *pace) expand(e *expansion, l *localAddrs, asked map[question]bool) {
	p.toExpand = e.advance(l, asked, p.toExpand, p.whole || p.first())
}
