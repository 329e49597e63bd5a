package table

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/model"
)

// A class that only gains by another's sets is allowed everything that the other one is, by the definition of policy.
func TestAClassThatOnlyGainsIsAllowedWhatTheOtherIs(t *testing.T) {
	found := 0
	rapid.Check(t, func(t *rapid.T) {
		w, p, n := policytest.DrawWorld(t), policytest.DrawPolicy(t), policytest.NewNumbers()
		prog, err := match.Expand(p, w, n)
		if err != nil {
			t.Fatal(err)
		}
		_, all := w.ClassesOf(prog, n)
		for range 20 {
			from, to := rapid.SampledFrom(all).Draw(t, "from"), rapid.SampledFrom(all).Draw(t, "to")
			if from.ID == to.ID || !prog.OnlyWidens(from, to) {
				continue
			}
			found++
			pkt := policytest.DrawPacket(t, w, p.Direction)
			if was, is := prog.Interpret(from, pkt), prog.Interpret(to, pkt); was.Action == bpf.RuleAllow && is.Action != bpf.RuleAllow {
				t.Fatalf("packet %+v is allowed to %+v and denied to %+v\n%s", pkt, from, to, policytest.Dump(prog, n))
			}
		}
	})
	if found == 0 {
		t.Error("no class gains only")
	}
}

// What only allows more is seen, and what takes something away, or leads elsewhere, as well.
func TestWhatOnlyWidens(t *testing.T) {
	rule := func(action uint8, in, notIn uint32) (r bpf.Rule) {
		r.Action, r.In[0], r.NotIn[0], r.Flags = action, in, notIn, bpf.RuleV4|bpf.RuleV6
		return r
	}
	for name, c := range map[string]struct {
		rule bpf.Rule
		want bool
	}{
		"an Allow that comes to hold":     {rule(bpf.RuleAllow, 2, 0), true},
		"an Allow that holds no more":     {rule(bpf.RuleAllow, 1, 0), false},
		"one that excludes the new set":   {rule(bpf.RuleAllow, 0, 2), false},
		"a Deny that comes to hold":       {rule(bpf.RuleDeny, 2, 0), false},
		"a Deny that holds no more":       {rule(bpf.RuleDeny, 1, 0), true},
		"one of a set that is the same":   {rule(bpf.RuleDeny, 3, 0), true},
		"a Pass that comes to hold":       {rule(bpf.RulePass, 2, 0), false},
		"a Pass that holds no more":       {rule(bpf.RulePass, 1, 0), false},
		"a Skip that holds no more":       {rule(bpf.RuleSkip, 1, 0), false},
		"a Log that comes to hold":        {rule(bpf.RuleLog, 2, 0), true},
		"an Allow of a set that none has": {rule(bpf.RuleAllow, 4, 0), true},
	} {
		p := &match.Program{Rules: []bpf.Rule{c.rule}, IDs: make([]model.RuleID, 1)}
		if got := p.OnlyWidens(classes.Class{ID: 9, Family: 4, Sets: []uint32{1, 3}}, classes.Class{ID: 10, Family: 4, Sets: []uint32{2, 3}}); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
