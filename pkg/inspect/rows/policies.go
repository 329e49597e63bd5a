package rows

import (
	"cmp"
	"math"
	"slices"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/model"
)

// Policies are all policies that a graph has, in their total order (D-15), with how many of its local endpoints each applies
// to.
func Policies(g *calc.Graph) []inspect.PolicyRow {
	byKey := map[model.PolicyKey]*inspect.PolicyRow{}
	for key, place := range g.PolicyPlaces() {
		_, kind := key.Kind.API()
		row := &inspect.PolicyRow{Tier: place.Tier, Order: finite(place.Order), Kind: kind, Namespace: key.Namespace, Name: key.Name, Staged: place.Staged}
		if tier, ok := g.FindTier(place.Tier); ok {
			row.TierOrder = finite(tier.Order)
		}
		byKey[key] = row
	}
	for _, ep := range g.LocalEndpoints() {
		for key := range keysOf(ep.Ingress) {
			byKey[key].Ingress++
		}
		for key := range keysOf(ep.Egress) {
			byKey[key].Egress++
		}
	}
	keys := make([]model.PolicyKey, 0, len(byKey))
	for key := range byKey {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b model.PolicyKey) int { return compare(g, byKey[a], byKey[b], a, b) })
	list := make([]inspect.PolicyRow, 0, len(keys))
	for _, key := range keys {
		list = append(list, *byKey[key])
	}
	return list
}

// keysOf are the policies of a direction.
func keysOf(p *model.DirectionPolicy) map[model.PolicyKey]struct{} {
	keys := map[model.PolicyKey]struct{}{}
	for _, t := range p.Tiers {
		for _, policy := range t.Policies {
			keys[policy.Key] = struct{}{}
		}
	}
	return keys
}

// compare is the total order of two policies.
func compare(g *calc.Graph, a, b *inspect.PolicyRow, keyA, keyB model.PolicyKey) int {
	return cmp.Or(g.CompareTiers(a.Tier, b.Tier), cmp.Compare(number(a.Order), number(b.Order)), cmp.Compare(keyA.SortKey(), keyB.SortKey()))
}

func number(order *float64) float64 {
	if order == nil {
		return model.NoOrder
	}
	return *order
}

// finite is an order as JSON has it; nil: there is none.
func finite(order float64) *float64 {
	if math.IsInf(order, 0) {
		return nil
	}
	return &order
}
