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
func Policies(g *calc.Graph) []inspect.PolicyRow { return ListPolicies(g).Rows() }

// PolicyList is what Policies needs of a graph. The graph may change meanwhile.
type PolicyList struct {
	policies  []listedPolicy
	tiers     map[string]int // the place of each
	endpoints []*model.EndpointPolicy
}

type listedPolicy struct {
	key     model.PolicyKey
	sortKey string
	row     inspect.PolicyRow
}

// ListPolicies reads a graph, which takes little of the time of Policies.
func ListPolicies(g *calc.Graph) *PolicyList {
	l := &PolicyList{tiers: map[string]int{}, endpoints: g.LocalEndpoints()}
	var tiers []string
	for key, place := range g.PolicyPlaces() {
		_, kind := key.Kind.API()
		p := listedPolicy{key: key, row: inspect.PolicyRow{Tier: place.Tier, Order: finite(place.Order), Kind: kind, Namespace: key.Namespace, Name: key.Name, Staged: place.Staged}}
		tier, ok := g.FindTier(place.Tier)
		if ok {
			p.row.TierOrder = finite(tier.Order)
		}
		if _, known := l.tiers[place.Tier]; !known {
			l.tiers[place.Tier], tiers = 0, append(tiers, place.Tier)
		}
		l.policies = append(l.policies, p)
	}
	slices.SortFunc(tiers, g.CompareTiers)
	for i, name := range tiers {
		l.tiers[name] = i
	}
	return l
}

// Rows are the policies of the list.
func (l *PolicyList) Rows() []inspect.PolicyRow {
	for i := range l.policies {
		l.policies[i].sortKey = l.policies[i].key.SortKey()
	}
	slices.SortFunc(l.policies, func(a, b listedPolicy) int {
		return cmp.Or(l.tiers[a.row.Tier]-l.tiers[b.row.Tier], cmp.Compare(number(a.row.Order), number(b.row.Order)), cmp.Compare(a.sortKey, b.sortKey))
	})
	rows, byKey := make([]inspect.PolicyRow, 0, len(l.policies)), map[model.PolicyKey]int{}
	for i, p := range l.policies {
		rows, byKey[p.key] = append(rows, p.row), i
	}
	for _, ep := range l.endpoints {
		for key := range keysOf(ep.Ingress) {
			rows[byKey[key]].Ingress++
		}
		for key := range keysOf(ep.Egress) {
			rows[byKey[key]].Egress++
		}
	}
	return rows
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
