package plan

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The first plan does all there is; a plan with changes leaves what is large to a later one, and cleans up less; while plans
// rest, hardly anything is cleaned up, unless so much is left that it has to be.
func TestHowMuchAPlanDoes(t *testing.T) {
	type does struct {
		Open, Close int
		Small       bool // a policy of 11 rules may be expanded
	}
	p := &pace{limit: 10}
	plan := func(changed bool, toClean int) does {
		toOpen, toClose := p.next(changed, toClean)
		return does{toOpen, toClose, p.mayExpand(11)}
	}
	got := []does{plan(true, 0), plan(false, 0), plan(true, 1), plan(false, 1)}
	p.rest(true)
	got = append(got, plan(false, 0), plan(true, mostLeft+1))
	want := []does{{math.MaxInt32, math.MaxInt32, true}, {10, 10, true}, {10, 2, false}, {5, 5, true}, {10, 1, false}, {10, 10, false}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
