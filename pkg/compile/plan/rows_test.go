package plan

import (
	"slices"
	"testing"

	"github.com/margay-project/margay/internal/policytest"
)

// The space for rows is used again, and the rows of a plan are its own: the next plan does not write over them.
func TestThePlanAfterLeavesTheRowsOfAPlanAsTheyAre(t *testing.T) {
	w := parts(Options{})
	first, second := pod("shop", "a", 1, 3), pod("evil", "m", 2, 40)
	first.Addrs, second.Addrs = policytest.Addrs("10.0.0.1"), policytest.Addrs("10.0.0.2")
	w.step(first)
	p := w.step(second)
	was := slices.Clone(p.Rows)
	space := cap(w.programs.rows)
	third := pod("evil", "n", 5, 20)
	third.Addrs = policytest.Addrs("10.0.0.3")
	if next := w.step(third); len(was) == 0 || len(next.Rows) == 0 {
		t.Fatalf("%d and %d rows: the test tests nothing", len(was), len(next.Rows))
	}
	if !slices.Equal(p.Rows, was) {
		t.Errorf("the rows of a plan were %v, and are %v after the next", was, p.Rows)
	}
	if space == 0 || cap(w.programs.rows) < space {
		t.Errorf("space for %d rows, and for %d after the next plan", space, cap(w.programs.rows))
	}
	w.programs.keepRows(make([]RowChange, mostRowsKept+1))
	if cap(w.programs.rows) > mostRowsKept {
		t.Errorf("space for %d rows is kept, want %d at most", cap(w.programs.rows), mostRowsKept)
	}
}
