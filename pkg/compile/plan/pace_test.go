package plan

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The first plan does all there is; a plan with changes leaves what is large to a later one, and cleans up less; while plans
// rest, hardly anything is cleaned up.
func TestHowMuchAPlanDoes(t *testing.T) {
	type does struct {
		Open, Close int
		Small       bool // a policy of 11 rules may be expanded
	}
	p := &pace{limit: 10}
	plan := func(changed, toClean bool) does {
		toOpen, toClose := p.next(changed, toClean)
		return does{toOpen, toClose, p.mayExpand(11)}
	}
	got := []does{plan(true, false), plan(false, false), plan(true, true), plan(false, true)}
	p.rest(true)
	got = append(got, plan(false, false))
	want := []does{{math.MaxInt32, math.MaxInt32, true}, {10, 10, true}, {10, 2, false}, {5, 5, true}, {10, 1, false}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
