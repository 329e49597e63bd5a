package plan

import (
	"iter"

	"github.com/margay-project/margay/pkg/model"
)

// A policy that is over a limit leaves its endpoints with the one before, whose sets change further. If these come to lack something that is past
// a limit, rules have to refer to the set of that, or they would allow it: the policy before does not.

// outlives reports whether a program judges right by its own rules what sets lack by now, though a policy takes its place that cannot.
func (p *program) outlives(by *model.DirectionPolicy) bool {
	lacks := map[model.SetID]bool{}
	for id := range pastSets(by) {
		lacks[id] = true
	}
	if len(lacks) == 0 {
		return true
	}
	for _, id := range p.Sets {
		delete(lacks, id)
	}
	return len(lacks) == 0
}

// pastSets yields the sets of what others lack that the rules of a policy refer to, or would if they were not refused.
func pastSets(p *model.DirectionPolicy) iter.Seq[model.SetID] {
	return func(yield func(model.SetID) bool) {
		for _, t := range p.Tiers {
			for _, rules := range t.Policies {
				if !rules.Staged && !yieldPast(rules, yield) {
					return
				}
			}
		}
		for _, rules := range p.Profiles {
			if !yieldPast(rules, yield) {
				return
			}
		}
	}
}

func yieldPast(rules *model.PolicyRules, yield func(model.SetID) bool) bool {
	for _, id := range rules.Past {
		if !yield(id) {
			return false
		}
	}
	for i := range rules.Rules {
		r := &rules.Rules[i]
		for _, list := range [][]model.SetID{r.Source.In, r.Source.NotIn, r.Destination.In, r.Destination.NotIn} {
			for _, id := range list {
				if id.IsPast() && !yield(id) {
					return false
				}
			}
		}
	}
	return true
}
