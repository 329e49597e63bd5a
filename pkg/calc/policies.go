package calc

import (
	"cmp"
	"strings"

	"github.com/margay-project/margay/pkg/keyset"
	"github.com/margay-project/margay/pkg/model"
)

// policyTable has the policies and profiles of the cluster, and works out which of them apply to the endpoints of this node.
type policyTable struct {
	policies keyset.Set[model.PolicyKey, policy]
	profiles keyset.Set[string, profile]
	local    *localIndex
	result   *resolver
	dirty    dirty
	sets     *setIndex // that rules refer to

	evaluation evaluation
	texts      ruleTexts
	tiers
}

func newPolicyTable(sets *setIndex) *policyTable {
	t := &policyTable{policies: keyset.New((*policy).id), profiles: keyset.New((*profile).id), tiers: builtinTiers(),
		local: newLocalIndex(sets.selected.labels), result: newResolver(), dirty: newDirty(), sets: sets, texts: newRuleTexts()}
	allow := []model.Rule{{Action: model.Allow}}
	t.profiles.Put(&profile{name: model.ProfileDefaultAllow, source: boxed(pack([2][]model.Rule{allow, allow}, nil, &t.texts))})
	return t
}

// policy is one policy of the datastore.
type policy struct {
	key       model.PolicyKey
	tier      string
	order     float64
	selection *policySelection // in the index of the node; nil: it was just deleted
	source    packedRules
	active    *active // nil: it does not apply on this node, as most do not
	applies   [2]bool // its types, by direction
	staged    bool
	action    model.StagedAction // if it is staged
}

// active is what a policy or profile has that applies on this node.
type active struct {
	sortKey string      // of a policy
	place   int         // of a policy, in the order of evaluation
	rules   [2]*ruleset // by direction; nil where it has none
}

// ruleset returns the rules of one direction; nil if there are none, or they do not apply on this node.
func (a *active) ruleset(d model.Direction) *ruleset {
	if a == nil {
		return nil
	}
	return a.rules[d]
}

func (p *policy) id() model.PolicyKey { return p.key }

// value is the policy with these rules, which are its own, as it came, but for lists without entries, which are nil.
func (p *policy) value(rules [2][]model.Rule) *model.Policy {
	return &model.Policy{
		Tier: p.tier, Order: p.order, Selector: p.selection.Selector(), Staged: p.staged, StagedAction: p.action,
		AppliesIngress: p.applies[model.Ingress], AppliesEgress: p.applies[model.Egress],
		Ingress: rules[model.Ingress], Egress: rules[model.Egress],
	}
}

// profile is one profile of the datastore. Its labels are with the label indexes.
type profile struct {
	name   string
	source *packedRules // nil: no rules, as most have
	active *active      // nil: it has no rules or no endpoint of this node names it
}

func (p *profile) id() string { return p.name }

// updatePolicy replaces one policy; nil removes it.
func (t *policyTable) updatePolicy(key model.PolicyKey, now *model.Policy) {
	p := t.policies.Get(key)
	if p == nil && now == nil {
		return
	}
	if p == nil {
		p = &policy{key: key}
		t.policies.Put(p)
	}
	var selection *policySelection
	if now != nil {
		p.tier, p.order, p.staged, p.action = now.Tier, now.Order, now.Staged, now.StagedAction
		p.applies = [2]bool{now.AppliesIngress, now.AppliesEgress}
		t.dirty.policies[p] = &arrived{policy: now}
		selection = t.local.labels.Add(now.Selector)
		t.dirty.selections[selection] = struct{}{}
	} else {
		t.dirty.policies[p] = &arrived{gone: true}
		t.policies.Delete(key)
	}
	was := p.selection
	p.selection = selection
	if was != nil {
		t.dirty.touch(was.Groups())
	}
	if was == selection {
		return
	}
	if was != nil {
		if was.Use.remove(p) {
			t.local.labels.Remove(was)
		}
	}
	if selection != nil {
		t.dirty.touch(selection.Groups())
		selection.Use.add(p)
	}
}

// updateProfile replaces one profile; nil removes it. It returns its labels, which others may inherit. The one that is built in stays as it is.
func (t *policyTable) updateProfile(name string, now *model.Profile) (labels map[string]string, updated bool) {
	if name == model.ProfileDefaultAllow {
		return nil, false
	}
	p := t.profiles.Get(name)
	if p == nil && now == nil {
		return nil, false
	}
	if p == nil {
		p = &profile{name: name}
		t.profiles.Put(p)
	}
	arrived := &arrived{gone: now == nil}
	if t.dirty.profiles[name] = arrived; now != nil {
		labels, arrived.plain = now.Labels, [2][]model.Rule{now.Ingress, now.Egress}
	}
	return labels, true
}

// comparePolicies orders active policies of one tier (D-15).
func comparePolicies(a, b *policy) int {
	if c := cmp.Compare(a.order, b.order); c != 0 {
		return c
	}
	return strings.Compare(a.active.sortKey, b.active.sortKey)
}
