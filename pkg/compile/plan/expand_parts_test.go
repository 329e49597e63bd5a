package plan

import (
	"testing"

	"github.com/margay-project/margay/pkg/compile/table"
)

// A large policy is expanded in parts, too: nothing of it is numbered for good, nor named, before it is whole, and what was
// begun for nobody leaves nothing.
func TestALargePolicyIsExpandedInParts(t *testing.T) {
	w := parts(Options{Limits: table.Limits{Open: 40}})
	small, large := pod("evil", "m", 1, 1), pod("evil", "m", 3, 200)
	w.step(small)
	numbered := w.Compiler.rules.Len()
	before := numbered
	for plan := range 4 {
		var p Plan
		if plan == 0 {
			p = w.step(large)
		} else {
			p = w.step()
		}
		now := w.Compiler.rules.Len()
		if !p.More || !w.Waiting()[large.ID] || now-before > 41 || len(p.RuleNames)+len(p.SetNames) > 0 {
			t.Errorf("plan %d: more %v, waiting %v, %d more rules, %d names", plan, p.More, w.Waiting(), now-before, len(p.RuleNames))
		}
		before = now
	}
	for p := w.step(small); p.More; p = w.step() {
	}
	if now := w.Compiler.rules.Len(); now != numbered || len(w.policies.making) != 0 || w.sets(small) != 1 {
		t.Errorf("%d rules have numbers, want %d; %d expansions", now, numbered, len(w.policies.making))
	}
	if err := w.k.garbage(); err != nil {
		t.Error(err)
	}
}
