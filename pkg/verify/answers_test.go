package verify

import (
	"net/netip"
	"testing"

	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/model"
)

// An answer agrees with the verdict that is demanded if each part of it does: the verdict, the entry behind it, and those on the way, as far as
// the kernel records them.
func TestAnAnswerAgreesIfEachPartDoes(t *testing.T) {
	const unnamed, unknown = 3, 4 // entries
	c := &comparing{points: []int{0, 1, 2, unnamed: -1, unknown: -2}, named: map[int]bool{0: true, 1: true, 2: true}}
	right := func(change func(*Answer)) Answer {
		a := Answer{Allow: true, Passes: []uint16{1, 0, 0}, NPasses: 1, Logs: []uint16{2, 0}, NLogs: 1}
		change(&a)
		return a
	}
	demanded := verdict{allow: true, by: 0, passes: []int{1}, logs: []int{2}}
	nameless := verdict{allow: true, by: 5, passes: []int{1}, logs: []int{2}}
	for name, test := range map[string]struct {
		verdict  verdict
		answer   Answer
		all      bool // agrees
		verdicts bool // agrees where names do not matter
	}{
		"all of it":                  {demanded, right(func(*Answer) {}), true, true},
		"it denies":                  {demanded, right(func(a *Answer) { a.Allow = false }), false, false},
		"another entry decides":      {demanded, right(func(a *Answer) { a.Entry = 1 }), false, true},
		"an entry of no rule":        {demanded, right(func(a *Answer) { a.Entry = unknown }), false, true},
		"an entry without a name":    {demanded, right(func(a *Answer) { a.Entry = unnamed }), false, true},
		"an entry that is not there": {demanded, right(func(a *Answer) { a.Entry = 5 }), false, true},
		"a part is missing":          {demanded, right(func(a *Answer) { a.Entry = -1 }), false, false},
		"another one passes":         {demanded, right(func(a *Answer) { a.Passes[0] = 2 }), false, true},
		"one more passes":            {demanded, right(func(a *Answer) { a.NPasses, a.Passes[1] = 2, 1 }), false, true},
		"none passes":                {demanded, right(func(a *Answer) { a.NPasses = 0 }), false, true},
		"another one logs":           {demanded, right(func(a *Answer) { a.Logs[0] = 0 }), false, true},
		"one more logs":              {demanded, right(func(a *Answer) { a.NLogs, a.Logs[1] = 2, 2 }), false, true},
		"none logs":                  {demanded, right(func(a *Answer) { a.NLogs = 0 }), false, true},
		"the way is not recorded":    {demanded, right(func(a *Answer) { a.Untraced, a.NPasses, a.NLogs = true, 0, 0 }), true, true},
		"a rule without a number":    {nameless, right(func(a *Answer) { a.Entry = unnamed }), true, true},
		"not by one with a number":   {nameless, right(func(a *Answer) { a.Entry = 1 }), false, true},
	} {
		if got := c.agrees(&test.answer, &test.verdict); got != test.all {
			t.Errorf("%s: %v", name, got)
		}
		bare := *c
		bare.unnamed = true
		if got := bare.agrees(&test.answer, &test.verdict); got != test.verdicts {
			t.Errorf("%s, where names do not matter: %v", name, got)
		}
	}
}

// The kernel counts entries on the way up to 255, and records the first few.
func TestEntriesOnTheWayAreCountedUpTo255(t *testing.T) {
	c := &comparing{points: []int{0, 1}}
	for n, want := range map[int]int{2: 2, 254: 254, 255: 255, 256: 255, 1000: 255} {
		v := verdict{passes: make([]int, n)}
		for i := range v.passes {
			v.passes[i] = 1
		}
		for _, counted := range []int{want - 1, want, want + 1} {
			if got := c.agrees(&Answer{Passes: []uint16{1, 1}, NPasses: counted}, &v); got != (counted == want) {
				t.Errorf("%d of %d: %v", counted, n, got)
			}
		}
	}
}

// A policy that several endpoints share is compared once, unless it differs: then each of them has the difference.
func TestADifferenceIsFoundForEachEndpoint(t *testing.T) {
	for _, action := range []model.Action{model.Allow, model.Deny} {
		p := policytest.OnePolicy(model.Ingress, model.MatchRule{Action: action})
		c := comparisonOf(t, p)
		for n := range 3 {
			r, err := c.CompareVerdicts(p, []netip.Addr{policytest.Own4}, allowing{}, 1)
			if err != nil || len(r.Differences) > 0 != (action == model.Deny) || r.Questions > 0 != (n == 0 || action == model.Deny) {
				t.Errorf("%v, endpoint %d: %d differences, %d packets, %v", action, n, len(r.Differences), r.Questions, err)
			}
		}
		if r, err := c.CompareVerdicts(p, []netip.Addr{policytest.Own4}, allowing{}, 2); err != nil || r.Questions == 0 {
			t.Errorf("%v: another policy of the kernel is not compared: %v", action, err)
		}
	}
}
