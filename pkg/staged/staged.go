// Package staged works out what policy would be if staged policies were enforced. It is pure.
package staged

import (
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

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

// evaluates reports whether the policy is staged, its rules have been worked out, and it would change something.
func evaluates(p *model.PolicyRules) bool {
	return p.Staged && p.Refused == "" && p.StagedAction != model.StagedIgnore
}

// Enforce returns the policy of a direction as if the staged policies that are chosen were enforced, and the other staged
// ones were not there. One with the action Delete, and one that stands for an enforced policy of its name (PolicyKey.Enforced),
// take that policy away. A chosen policy is not staged any more, and keeps its key. p stays as it is.
func Enforce(p *model.DirectionPolicy, chosen func(model.PolicyKey) bool) *model.DirectionPolicy {
	as := &model.DirectionPolicy{Direction: p.Direction, Profiles: p.Profiles}
	gone := removed(p, chosen)
	for _, t := range p.Tiers {
		tier := model.TierPolicy{Name: t.Name, Default: t.Default}
		for _, policy := range t.Policies {
			if now := enforced(policy, chosen, gone); now != nil {
				tier.Policies = append(tier.Policies, now)
			}
		}
		if len(tier.Policies) > 0 {
			as.Tiers = append(as.Tiers, tier)
		}
	}
	return as
}

// removed are the enforced policies that chosen staged ones take away, each with that one.
func removed(p *model.DirectionPolicy, chosen func(model.PolicyKey) bool) map[model.PolicyKey]*model.Credit {
	gone := map[model.PolicyKey]*model.Credit{}
	for _, t := range p.Tiers {
		for _, policy := range t.Policies {
			if of := policy.Key.Enforced(); evaluates(policy) && chosen(policy.Key) && of != policy.Key {
				gone[of] = &model.Credit{Tier: t.Name, Policy: policy.Key}
			}
		}
	}
	return gone
}

// enforced is the policy as it would be; nil: it would not be there.
func enforced(p *model.PolicyRules, chosen func(model.PolicyKey) bool, gone map[model.PolicyKey]*model.Credit) *model.PolicyRules {
	switch {
	case !p.Staged && gone[p.Key] != nil:
		return nil
	case !p.Staged:
		return p
	case !evaluates(p) || !chosen(p.Key) || p.StagedAction == model.StagedDelete:
		return nil
	}
	now := *p
	now.Staged = false
	return &now
}

// Shadow returns the policy of a direction as if all its staged policies were enforced, with the staged policy to which each
// verdict is due that may differ from that of p. Nil: p has none that can be evaluated. A staged policy that
// decides has the credit itself; otherwise it is due to the nearest staged policy before the one that decides which passes on, or
// took an enforced policy away.
func Shadow(p *model.DirectionPolicy) *model.DirectionPolicy {
	if len(Keys(p)) == 0 {
		return nil
	}
	s := shadow{gone: removed(p, All)}
	as := &model.DirectionPolicy{Direction: p.Direction, Shadow: true}
	for _, t := range p.Tiers {
		if tier := s.tier(&t); len(tier.Policies) > 0 {
			as.Tiers = append(as.Tiers, tier)
		}
	}
	for _, profile := range p.Profiles {
		as.Profiles = append(as.Profiles, credited(profile, s.cause))
	}
	as.Credit = s.cause
	return as
}

// shadow is where Shadow has got to.
type shadow struct {
	gone  map[model.PolicyKey]*model.Credit
	cause *model.Credit // of verdicts from here on by policies that are not staged; nil: they are as before
}

func (s *shadow) tier(t *model.TierPolicy) model.TierPolicy {
	tier := model.TierPolicy{Name: t.Name, Default: t.Default}
	isolated := false // by the enforced policy
	for _, policy := range t.Policies {
		isolated = isolated || !policy.Staged
		now := enforced(policy, All, s.gone)
		switch {
		case now == nil && !policy.Staged:
			s.cause = s.gone[policy.Key]
		case now == nil:
		case policy.Staged:
			own := &model.Credit{Tier: t.Name, Policy: policy.Key}
			now.Credit = own
			tier.Policies = append(tier.Policies, now)
			if slices.ContainsFunc(policy.Rules, func(r model.MatchRule) bool { return r.Action == model.Pass }) {
				s.cause = own
			}
		default:
			tier.Policies = append(tier.Policies, credited(policy, s.cause))
		}
	}
	switch {
	case len(tier.Policies) == 0:
	case !isolated:
		tier.Credit = tier.Policies[0].Credit
	default:
		tier.Credit = s.cause
	}
	return tier
}

// credited is a policy or profile whose verdicts are due to c.
func credited(p *model.PolicyRules, c *model.Credit) *model.PolicyRules {
	if c == nil {
		return p
	}
	now := *p
	now.Credit = c
	return &now
}

// All chooses every staged policy.
func All(model.PolicyKey) bool { return true }

// Only chooses one staged policy.
func Only(key model.PolicyKey) func(model.PolicyKey) bool {
	return func(k model.PolicyKey) bool { return k == key }
}

// nothing are the policies of the directions of a shadow that have no staged policy.
var nothing = [2]*model.DirectionPolicy{
	{Direction: model.Ingress, Shadow: true}, {Direction: model.Egress, Shadow: true},
}

// None is the policy of a shadow in a direction that has no staged policy. It is never to be asked.
func None(d model.Direction) *model.DirectionPolicy { return nothing[d] }

// IsNone reports whether a policy is that of None.
func IsNone(p *model.DirectionPolicy) bool { return p == nothing[p.Direction] }
