package calc

import (
	"iter"
	"maps"
	"slices"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// activate decides which policies and profiles apply on this node, and which of their rules must be built.
func (t *policyTable) activate() {
	for s := range t.dirty.selections {
		if active := !s.IsEmpty(); active != s.Use.active {
			s.Use.active = active
			for _, p := range s.Use.policies {
				t.dirty.policies[p] = struct{}{}
			}
		}
	}
	for p := range t.dirty.policies {
		t.activatePolicy(p)
	}
	for name := range t.dirty.profiles {
		t.activateProfile(name)
	}
}

func (t *policyTable) activatePolicy(p *policy) {
	if p.selection == nil || p.selection.IsEmpty() {
		p.rules = [2]*ruleset{t.retire(p.rules[model.Ingress]), t.retire(p.rules[model.Egress])}
		p.source = t.packed(p.source)
		return
	}
	lists := sourceRules(p.source)
	p.source = plain(lists)
	if p.sortKey == "" {
		p.sortKey = p.key.SortKey()
	}
	for d, applies := range p.applies {
		if !applies {
			p.rules[d] = t.retire(p.rules[d])
			continue
		}
		if rs := p.rules[d]; rs != nil && rs.staged != p.staged {
			p.rules[d] = t.retire(rs) // it is charged to another account
		}
		if p.rules[d] == nil {
			p.rules[d] = &ruleset{key: p.key, direction: model.Direction(d)}
		}
		p.rules[d].staged, p.rules[d].action, p.rules[d].source = p.staged, p.action, lists[d]
		t.dirty.rulesets[p.rules[d]] = struct{}{}
	}
}

// packed returns rules that do not apply on this node, to be kept.
func (t *policyTable) packed(s ruleStore) ruleStore {
	rules, ok := s.(*plainRules)
	if !ok {
		return s
	}
	return pack(*rules, func(s *selector.Selector) *selector.Selector {
		same, found := t.local.labels.Same(s)
		if !found {
			same, _ = t.sets.labels.Same(s)
		}
		return same
	})
}

// plain returns rules that apply on this node, to be kept.
func plain(lists [2][]model.Rule) ruleStore {
	if len(lists[0])+len(lists[1]) == 0 {
		return nil
	}
	return (*plainRules)(&lists)
}

func (t *policyTable) activateProfile(name string) {
	p := t.profiles[name]
	if p == nil {
		return
	}
	var rules [2][]model.Rule
	switch {
	case p.gone:
		delete(t.profiles, name)
	case t.local.labels.IsParent(name):
		rules = sourceRules(p.source)
		p.source = plain(rules)
	default:
		p.source = t.packed(p.source)
	}
	for d, source := range rules {
		switch rs := p.rules[d]; {
		case len(source) > 0 && rs == nil:
			key := model.PolicyKey{Kind: model.KindProfile, Name: name}
			p.rules[d] = &ruleset{key: key, direction: model.Direction(d), source: source}
			t.dirty.rulesets[p.rules[d]] = struct{}{}
		case len(source) > 0:
			rs.source = source
			t.dirty.rulesets[rs] = struct{}{}
		case rs != nil:
			t.touchGroups(t.appliesTo(rs))
			p.rules[d] = t.retire(rs)
		}
	}
}

// appliesTo returns the groups of the local index that the rules apply to.
func (t *policyTable) appliesTo(rs *ruleset) iter.Seq[*localGroup] {
	if rs.key.Kind == model.KindProfile {
		return t.local.labels.Children(rs.key.Name)
	}
	return t.policies[rs.key].selection.Groups()
}

// retire gives up what a ruleset, which may be nil, refers to. It returns nil.
func (t *policyTable) retire(rs *ruleset) *ruleset {
	if rs != nil {
		t.sets.use(rs, nil)
		delete(t.sets.spending.refused, rs)
		delete(t.dirty.rulesets, rs)
	}
	return nil
}

// buildRules builds the rules that may have changed.
func (t *policyTable) buildRules() {
	for _, rs := range inTurn(t.dirty.rulesets) {
		if t.sets.build(rs) {
			t.result.serial++
			rs.serial = t.result.serial
			t.touchGroups(t.appliesTo(rs))
		}
	}
}

// policiesOf returns the policies that apply to a group of the local index, in evaluation order.
func (t *policyTable) policiesOf(gr *localGroup) []*policy {
	var all []*policy
	for s := range gr.Selections() {
		all = append(all, s.Use.policies...)
	}
	sortPolicies(all, t.tiers)
	return all
}

// retryRefused has the rules of policies worked out again that were refused, because others of their namespace changed.
func (t *policyTable) retryRefused(changed map[model.PolicyKey]*model.Policy) {
	if len(t.sets.spending.refused) == 0 {
		return
	}
	namespaces := map[string]bool{}
	for key := range changed {
		namespaces[key.Namespace] = true
	}
	for rs := range t.sets.spending.refused {
		if namespaces[rs.key.Namespace] {
			t.dirty.rulesets[rs] = struct{}{}
		}
	}
}

// inTurn are the rulesets to build: those of one namespace always in the same order, since there may not be room for all.
func inTurn(dirty map[*ruleset]struct{}) []*ruleset {
	return slices.SortedFunc(maps.Keys(dirty), func(a, b *ruleset) int {
		if c := a.key.Compare(b.key); c != 0 {
			return c
		}
		return int(a.direction) - int(b.direction)
	})
}
