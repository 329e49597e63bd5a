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

// So is what has to be known of the whole: its cost and its numbers. A plan with changes does not go on with that.
func TestALargePolicyIsFinishedInParts(t *testing.T) {
	const rules = 5000
	w := parts(Options{Limits: table.Limits{Open: 256}})
	small, large := pod("evil", "m", 1, 1), pod("evil", "m", 3, rules)
	w.step(small)
	before := w.Compiler.rules.Len()
	finishing := 0
	for p := w.step(large); p.More; p = w.step() {
		if w.Compiler.rules.Len() < before+rules-1 || len(w.policies.making) == 0 { // the first rule has its number
			continue
		}
		finishing++
		other := pod("shop", "a", 4, finishing)
		if p := w.step(other); w.Waiting()[other.ID] || len(p.Bind) != 1 || !w.Waiting()[large.ID] {
			t.Errorf("beside a large policy that is finished, %d endpoints are bound; waiting: %v", len(p.Bind), w.Waiting())
		}
	}
	if least := 3 * rules / itemCost / 256; finishing < least {
		t.Errorf("a policy of %d rules was finished in %d plans once they were expanded, want %d at least", rules, finishing, least)
	}
	if n := w.sets(large); n != rules || len(w.Waiting()) > 0 {
		t.Errorf("the policy of %d sets is not enforced: %d; waiting: %v", rules, n, w.Waiting())
	}
}
