package policytest

import (
	"net/netip"

	"github.com/margay-project/margay/pkg/model"
)

// Ref returns a pointer to a copy.
func Ref[T any](v T) *T { return &v }

// PortsOf matches ranges of ports, each given by its first and last port.
func PortsOf(ranges ...uint16) *model.PortMatch {
	m := &model.PortMatch{}
	for i := 0; i < len(ranges); i += 2 {
		m.Ranges = append(m.Ranges, model.PortRange{Lo: ranges[i], Hi: ranges[i+1]})
	}
	return m
}

// ExpandWorld's endpoint is 10.0.0.1 and fd00::1; mine4 has the first, mine both, theirs neither.
var ExpandWorld = &World{
	Own: []netip.Addr{Own4, Own6},
	Sets: map[model.SetID][]netip.Prefix{
		"mine4": Prefixes("10.0.0.1/32"), "mine": Prefixes("10.0.0.1/32", "fd00::1/128"), "theirs": Prefixes("10.9.9.9/32"),
	},
}

// OnePolicy is a tier of one policy with these rules; they allow unless they have an action.
func OnePolicy(d model.Direction, rules ...model.MatchRule) *model.DirectionPolicy {
	for i := range rules {
		rules[i].Index = i
		if rules[i].Action == 0 {
			rules[i].Action = model.Allow
		}
	}
	return &model.DirectionPolicy{Direction: d, Tiers: []model.TierPolicy{{
		Name: "default", Default: model.Deny,
		Policies: []*model.PolicyRules{{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "p"}, Rules: rules}},
	}}}
}
