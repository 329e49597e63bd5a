package plan

import (
	"testing"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/model"
)

// ofNamespaces is a program with a rule for each namespace, about a set each.
func ofNamespaces(shadow bool, namespaces []string, sets ...uint32) *program {
	p := &match.Program{Shadow: shadow}
	for i, namespace := range namespaces {
		p.Rules = append(p.Rules, bpf.Rule{In: [3]uint32{sets[i]}})
		p.IDs = append(p.IDs, model.RuleID{Point: model.AtRule, Policy: model.PolicyKey{Namespace: namespace}})
	}
	prog := newProgram(model.Ingress, p)
	prog.desired = 1
	return prog
}

func TestASetBelongsToTheOnlyNamespaceWhosePoliciesReferToIt(t *testing.T) {
	a, b, wide := []string{"a"}, []string{"b"}, []string{""}
	for what, tc := range map[string]struct {
		programs []*program
		want     *author
	}{
		"one policy":            {[]*program{ofNamespaces(false, a, 1)}, &author{"a", false}},
		"two of one namespace":  {[]*program{ofNamespaces(false, a, 1), ofNamespaces(false, a, 1)}, &author{"a", false}},
		"a staged one":          {[]*program{ofNamespaces(true, a, 1)}, &author{"a", true}},
		"enforced, staged":      {[]*program{ofNamespaces(false, a, 1), ofNamespaces(true, a, 1)}, &author{"a", false}},
		"staged, enforced":      {[]*program{ofNamespaces(true, a, 1), ofNamespaces(false, a, 1)}, &author{"a", false}},
		"two namespaces":        {[]*program{ofNamespaces(false, a, 1), ofNamespaces(false, b, 1)}, nil},
		"two, and one again":    {[]*program{ofNamespaces(false, a, 1), ofNamespaces(false, b, 1), ofNamespaces(false, a, 1)}, nil},
		"two, one staged":       {[]*program{ofNamespaces(false, a, 1), ofNamespaces(true, b, 1)}, nil},
		"a cluster-wide policy": {[]*program{ofNamespaces(false, a, 1), ofNamespaces(false, wide, 1)}, nil},
		"cluster-wide first":    {[]*program{ofNamespaces(false, wide, 1), ofNamespaces(false, a, 1)}, nil},
		"one rule of each":      {[]*program{ofNamespaces(false, []string{"a", "", "a"}, 1, 2, 1)}, &author{"a", false}},
	} {
		by := authorsOf(tc.programs, nil, map[*program][]madeBy{})
		switch of := by.of(1); {
		case tc.want == nil && of != classes.NoAuthor:
			t.Errorf("%s: author %d", what, of)
		case tc.want != nil && (of < 0 || by.list[of] != *tc.want):
			t.Errorf("%s: author %d of %v, want %v", what, of, by.list, *tc.want)
		}
		if of := by.of(9); of != classes.Leaving {
			t.Errorf("%s: a set that no program refers to has the author %d", what, of)
		}
	}
}

// Each author has one program, and those in force judge packets.
func TestWhoGivesWay(t *testing.T) {
	type is struct {
		alone, added int
		inForce      bool
	}
	const few, many = 63, 64
	for what, tc := range map[string]struct {
		authors []is
		full    bool
		want    int
	}{
		"the one that adds most":                 {[]is{{many, 10, false}, {many, 20, false}, {many, 5, false}}, false, 1},
		"what comes before what is in force":     {[]is{{many, 90, true}, {many, 20, false}}, true, 1},
		"many combinations in force, and room":   {[]is{{many, 90, true}, {few, 20, false}}, false, -1},
		"many combinations in force, no room":    {[]is{{many, 90, true}, {few, 95, false}}, true, 0},
		"few combinations in force":              {[]is{{few, 90, true}}, true, -1},
		"few that come beside few in force":      {[]is{{few, 90, true}, {few, 20, false}}, false, 1},
		"sets of others make all of the classes": {[]is{{many, 0, false}}, true, -1},
	} {
		a := &authors{judging: map[*program]bool{}}
		var shares []classes.Share
		for _, of := range tc.authors {
			prog := &program{}
			a.judging[prog] = of.inForce
			a.programs = append(a.programs, []*program{prog})
			shares = append(shares, classes.Share{Alone: of.alone, Added: of.added})
		}
		if by, _ := a.choose(shares, few, tc.full); by != tc.want {
			t.Errorf("%s: %d gives way, want %d", what, by, tc.want)
		}
	}
}
