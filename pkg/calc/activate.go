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
		if active := !s.IsEmpty(); active != s.Use.active() {
			for p := range s.Use.policies() {
				t.dirty.policy(p)
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

// packSources packs the rules of policies and profiles that were looked at, now that the indexes have the selectors of those
// that apply.
func (t *policyTable) packSources() {
	intern := func(s *selector.Selector) *selector.Selector {
		same, found := t.local.labels.Same(s)
		if !found {
			same, _ = t.sets.selected.labels.Same(s)
		}
		return same
	}
	for p, now := range t.dirty.policies {
		if now != nil {
			p.source = t.texts.replace(p.source, pack(now.rules(), intern, &t.texts))
		}
	}
	for name, now := range t.dirty.profiles {
		if p := t.profiles.Get(name); p != nil && now != nil {
			p.source = boxed(t.texts.replace(p.source.unboxed(), pack(now.rules(), intern, &t.texts)))
		}
	}
}

func (t *policyTable) activatePolicy(p *policy) {
	t.touchReplaced(p.key)
	t.evaluation.stale = true
	if p.selection == nil || p.selection.IsEmpty() {
		t.retire(p.active.ruleset(model.Ingress))
		t.retire(p.active.ruleset(model.Egress))
		p.active = nil
		return
	}
	if p.active == nil {
		p.active = &active{sortKey: p.key.SortKey()}
		t.evaluation.came = append(t.evaluation.came, p)
	}
	rules := &p.active.rules
	for d, applies := range p.applies {
		if !applies || p.deletes() {
			rules[d] = t.retire(rules[d])
			continue
		}
		if rs := rules[d]; rs != nil && rs.staged != p.staged {
			rules[d] = t.retire(rs) // it is charged to another account
		}
		if rules[d] == nil {
			rules[d] = &ruleset{key: p.key, direction: model.Direction(d)}
		}
		rules[d].staged, rules[d].action = p.staged, p.action
		t.dirty.rulesets[rules[d]] = struct{}{}
	}
}

func (t *policyTable) activateProfile(name string) {
	p := t.profiles.Get(name)
	if p == nil {
		return
	}
	var rules [2][]model.Rule
	switch {
	case t.dirty.profiles[name].isGone():
		t.profiles.Delete(name)
		t.texts.replace(p.source.unboxed(), packedRules{})
	case t.local.labels.IsParent(name):
		rules = t.dirty.profileRules(p)
	}
	for d, source := range rules {
		switch rs := p.active.ruleset(model.Direction(d)); {
		case len(source) > 0 && rs == nil:
			rs = &ruleset{key: model.PolicyKey{Kind: model.KindProfile, Name: name}, direction: model.Direction(d)}
			if p.active == nil {
				p.active = &active{}
			}
			p.active.rules[d] = rs
			t.dirty.rulesets[rs] = struct{}{}
		case len(source) > 0:
			t.dirty.rulesets[rs] = struct{}{}
		case rs != nil:
			t.dirty.touch(t.appliesTo(rs))
			p.active.rules[d] = t.retire(rs)
		}
	}
	if len(rules[0])+len(rules[1]) == 0 {
		p.active = nil
	}
}

// sourceOf returns the rules of the policy or profile that a ruleset is made of.
func (t *policyTable) sourceOf(rs *ruleset) []model.Rule {
	if rs.key.Kind == model.KindProfile {
		return t.dirty.profileRules(t.profiles.Get(rs.key.Name))[rs.direction]
	}
	return t.dirty.policyRules(t.policies.Get(rs.key))[rs.direction]
}

// appliesTo returns the groups of the local index that the rules apply to.
func (t *policyTable) appliesTo(rs *ruleset) iter.Seq[*localGroup] {
	if rs.key.Kind == model.KindProfile {
		return t.local.labels.Children(rs.key.Name)
	}
	return t.policies.Get(rs.key).selection.Groups()
}

// retire gives up what a ruleset, which may be nil, refers to. It returns nil.
func (t *policyTable) retire(rs *ruleset) *ruleset {
	if rs != nil {
		t.sets.use(rs, nil)
		delete(t.sets.spending.refused, rs)
		delete(t.dirty.rulesets, rs)
		t.sets.relief.forget(rs)
	}
	return nil
}

// buildRules builds the rules that may have changed. Those that are refused are built once more if others have given up
// something since, so a policy is judged by what the others use at the end, and not before their turn.
func (t *policyTable) buildRules() {
	t.result.work.Rules = 0
	empty(&t.sets.spending.tried)
	maps.Copy(t.dirty.rulesets, t.sets.relief.rebuilt())
	t.buildInTurn(t.dirty.rulesets)
	empty(&t.sets.relief.refused)
	t.buildInTurn(t.sets.spending.roomier())
}

func (t *policyTable) buildInTurn(list map[*ruleset]struct{}) {
	if len(list) == 0 {
		return
	}
	t.result.work.Rules += len(list)
	for _, rs := range inTurn(list) {
		if t.sets.build(rs, t.sourceOf(rs)) {
			t.result.serial++
			rs.serial = t.result.serial
			t.dirty.touch(t.appliesTo(rs))
			t.touchReplaced(rs.key)
		}
	}
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
func inTurn(list map[*ruleset]struct{}) []*ruleset {
	return slices.SortedFunc(maps.Keys(list), func(a, b *ruleset) int {
		if c := a.key.Compare(b.key); c != 0 {
			return c
		}
		return int(a.direction) - int(b.direction)
	})
}
