package calc

import "github.com/margay-project/margay/pkg/model"

// deletes reports whether it is a staged policy with the action Delete. It judges nothing: all it is for is its mark.
func (p *policy) deletes() bool { return p.staged && p.action == model.StagedDelete }

// deletion is the mark of the staged policy that stands for this one, where it takes this one away and does not apply itself:
// it selects less, is about fewer directions, or deletes. Nil: there is no such policy, or it applies. The mark is a staged policy
// without rules that deletes. Its author can mark only what the enforced policy of the same name selects. The endpoint is of the group in
// hand.
func (e *evaluation) deletion(p *policy, d model.Direction) *model.PolicyRules {
	by := e.stands[p.active.place]
	if by == nil || !by.staged || by.action == model.StagedIgnore {
		return nil
	}
	if rs := by.active.ruleset(d); rs != nil && (rs.rules.Refused != "" || e.selects(by)) {
		return nil // a refused one is evaluated nowhere
	}
	return &model.PolicyRules{Key: by.key, Staged: true, StagedAction: model.StagedDelete}
}

// touchReplaced has the groups looked at again that the policy selects for which a staged one stands. Of another policy it does
// nothing.
func (t *policyTable) touchReplaced(staged model.PolicyKey) {
	key := staged.Enforced()
	if key == staged {
		return
	}
	if p := t.policies.Get(key); p != nil && p.selection != nil {
		t.dirty.touch(p.selection.Groups())
	}
}

// concerns reports whether a policy, or the one for which it stands, selects a group of any index.
func (p *policy) concerns(t *policyTable, gr *group) bool {
	if p.selection.Selector().Matches(gr) {
		return true
	}
	key := p.key.Enforced()
	if key == p.key {
		return false
	}
	of := t.policies.Get(key)
	return of != nil && of.selection != nil && of.selection.Selector().Matches(gr)
}
