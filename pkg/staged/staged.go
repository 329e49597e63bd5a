// Package staged works out what policy would be if staged policies were enforced. It is pure.
package staged

import "github.com/margay-project/margay/pkg/model"

// Keys are the staged policies of a direction that can be evaluated, in their order.
func Keys(p *model.DirectionPolicy) []model.PolicyKey {
	var keys []model.PolicyKey
	for _, t := range p.Tiers {
		for _, policy := range t.Policies {
			if evaluates(policy) {
				keys = append(keys, policy.Key)
			}
		}
	}
	return keys
}

// evaluates reports whether the policy is staged and its rules have been worked out.
func evaluates(p *model.PolicyRules) bool { return p.Staged && p.Refused == "" }

// Enforce returns the policy of a direction as if the staged policies that are chosen were enforced, and the other staged
// ones were not there. Its PolicyRules are not staged any more, and keep their keys. p stays as it is.
func Enforce(p *model.DirectionPolicy, chosen func(model.PolicyKey) bool) *model.DirectionPolicy {
	as := &model.DirectionPolicy{Direction: p.Direction, Profiles: p.Profiles}
	for _, t := range p.Tiers {
		tier := model.TierPolicy{Name: t.Name, Default: t.Default}
		for _, policy := range t.Policies {
			switch {
			case !policy.Staged:
				tier.Policies = append(tier.Policies, policy)
			case evaluates(policy) && chosen(policy.Key):
				enforced := *policy
				enforced.Staged = false
				tier.Policies = append(tier.Policies, &enforced)
			}
		}
		if len(tier.Policies) > 0 {
			as.Tiers = append(as.Tiers, tier)
		}
	}
	return as
}

// All chooses every staged policy.
func All(model.PolicyKey) bool { return true }

// Only chooses one staged policy.
func Only(key model.PolicyKey) func(model.PolicyKey) bool {
	return func(k model.PolicyKey) bool { return k == key }
}
