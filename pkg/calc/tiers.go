package calc

import (
	"cmp"

	"github.com/margay-project/margay/pkg/model"
)

// tiers are the tiers that exist, by name.
type tiers map[string]model.Tier

// builtinTiers exist without an update, and no update changes them (semantics §2, D-2).
func builtinTiers() tiers {
	return tiers{
		model.TierKubeAdmin:    {Order: model.OrderKubeAdmin, Default: model.Pass},
		model.TierDefault:      {Order: model.OrderDefaultTier, Default: model.Deny},
		model.TierKubeBaseline: {Order: model.OrderKubeBaseline, Default: model.Pass},
	}
}

func isBuiltin(name string) bool {
	return name == model.TierKubeAdmin || name == model.TierDefault || name == model.TierKubeBaseline
}

// update replaces one tier, nil removes it, and reports whether that makes a difference.
func (t tiers) update(name string, now *model.Tier) bool {
	was, existed := t[name]
	switch {
	case isBuiltin(name):
		return false
	case now == nil:
		delete(t, name)
		return existed
	}
	tier := model.Tier{Order: now.Order, Default: model.Deny}
	if now.Default == model.Pass {
		tier.Default = model.Pass
	}
	t[name] = tier
	return cmp.Compare(was.Order, tier.Order) != 0 || was.Default != tier.Default // a zero Default is neither
}

// compare is the evaluation order: tiers that do not exist come last, by name (D-2, D-15).
func (t tiers) compare(a, b string) int {
	if a == b {
		return 0
	}
	ta, aExists := t[a]
	tb, bExists := t[b]
	switch {
	case aExists && !bExists:
		return -1
	case bExists && !aExists:
		return 1
	}
	return cmp.Or(cmp.Compare(ta.Order, tb.Order), cmp.Compare(a, b))
}

// defaultAction is Deny for a tier that does not exist.
func (t tiers) defaultAction(name string) model.Action {
	if t[name].Default == model.Pass {
		return model.Pass
	}
	return model.Deny
}

// updateTiers replaces tiers. A difference may reorder the policy of the local endpoints that a policy of the tier applies to,
// or how it ends.
func (t *policyTable) updateTiers(updates map[string]*model.Tier) {
	changed := map[string]bool{}
	for name, tier := range updates {
		if t.tiers.update(name, tier) {
			changed[name] = true
		}
	}
	if len(changed) == 0 {
		return
	}
	t.evaluation.stale = true
	for gr := range t.local.labels.Groups() {
		for s := range gr.Selections() {
			for p := range s.Use.policies() {
				if changed[p.tier] {
					t.dirty.groups[gr] = struct{}{}
					break
				}
			}
		}
	}
}
