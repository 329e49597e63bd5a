package plan

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The first plan does all there is; a plan with changes leaves large policies to a later one, and cleaning up, too, unless
// there is little of it; while plans rest, hardly anything is cleaned up. With a great many sets to clean up, plans open less
// than they clean up; with twice as many, every plan cleans up.
func TestHowMuchAPlanDoes(t *testing.T) {
	type does struct {
		Open, Close int
		Small       bool // a policy of 41 rules may be expanded
	}
	p := &pace{limit: 40}
	plan := func(changed bool, toClean int) does {
		toOpen, toClose := p.next(changed, toClean)
		return does{toOpen, toClose, p.mayExpand(41)}
	}
	got := []does{plan(true, 0), plan(false, 0), plan(true, manyLeft), plan(true, manyLeft+1), plan(false, 1), plan(false, mostLeft+1)}
	p.spread(0)
	got = append(got, plan(false, 0), plan(true, mostLeft+1), plan(true, 2*mostLeft+1))
	want := []does{{math.MaxInt32, math.MaxInt32, true}, {20, 20, true}, {40, 10, false}, {40, 0, false}, {10, 10, true}, {5, 20, true},
		{40, 1, false}, {40, 0, false}, {40, 40, false}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A plan that goes on with large policies does as many parts as it was told; one with changes, or that rests, does not.
func TestAPlanDoesSeveralParts(t *testing.T) {
	type does struct{ Open, Close, Make, Expand int }
	p := &pace{limit: 40, limitMake: 7}
	p.spread(3)
	plan := func(changed bool, toClean int) does {
		toOpen, toClose := p.next(changed, toClean)
		return does{toOpen, toClose, p.toMake(), p.toExpand}
	}
	plan(true, 0)
	got := []does{plan(false, 0), plan(true, 0)}
	p.spread(0)
	got = append(got, plan(false, 0))
	p.spread(1)
	got = append(got, plan(false, 0))
	p.spread(1 << 40)
	got = append(got, plan(false, 0))
	want := []does{{60, 60, 21, 60}, {40, 10, 56, 40}, {40, 1, 56, 40}, {20, 20, 7, 20}, {20 * mostParts, 20 * mostParts, 7 * mostParts, 20 * mostParts}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
