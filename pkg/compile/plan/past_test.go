package plan

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/margay-project/margay/pkg/model"
)

// A policy that comes to refer to what one of its sets lacks, and is over a limit by that, or because its rules are refused, does not leave its
// pods with the rules of before: these would allow what is denied. It leaves them as they are for any other reason.
func TestAPolicyWhoseSetsLackSomethingDoesNotStayWithoutThat(t *testing.T) {
	const out = model.SetID(model.PrefixPast + "0")
	set := func(i int) model.SetID { return model.SetID(fmt.Sprint("s:", i)) }
	denied := netip.MustParsePrefix("20.0.0.0/24")
	of := func(sets ...model.SetID) *model.PolicyRules {
		rules := &model.PolicyRules{Key: model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: "shop", Name: "p"}}
		for i, id := range sets {
			rules.Rules = append(rules.Rules, model.MatchRule{Action: model.Deny, Index: i, Source: model.Side{In: []model.SetID{id}}})
		}
		rules.Rules = append(rules.Rules, model.MatchRule{Action: model.Allow, Index: len(sets)})
		return rules
	}
	refused := func(past ...model.SetID) *model.PolicyRules {
		return &model.PolicyRules{Key: of().Key, Refused: "too much", Past: past}
	}
	five := []model.SetID{set(0), set(1), set(2), set(3), set(4)}
	for name, test := range map[string]struct {
		before, after *model.PolicyRules
		bound         bool
	}{
		"there is room":              {of(five[:4]...), of(append(five[:4:4], out)...), true},
		"too many sets":              {of(five...), of(append(five[:5:5], out)...), false},
		"refused":                    {of(five...), refused(out), false},
		"refused for something else": {of(five...), refused(), true},
		"it has the set already":     {of(append(five[:4:4], out)...), of(append(five[:5:5], out)...), true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTenants(t, Budget{Direction: Cost{Sets: 5}})
			var id model.EndpointID
			update := func(rules *model.PolicyRules, sets map[model.SetID]*model.SetChange) {
				p := &model.DirectionPolicy{Direction: model.Ingress, Tiers: []model.TierPolicy{{Name: model.TierDefault, Default: model.Deny, Policies: []*model.PolicyRules{rules}}}}
				e := endpointPolicy("a", p, openEgress, "10.0.0.1")
				e.ID.Namespace, e.Iface = "shop", "calishopa"
				id = e.ID
				ch := model.Changes{InSync: true, Endpoints: map[model.EndpointID]*model.EndpointPolicy{id: e}, Sets: sets}
				for more := true; more; ch = (model.Changes{InSync: true}) {
					plan := w.Update(ch)
					carryOut(w.k, plan)
					more = plan.More
				}
			}
			sets := map[model.SetID]*model.SetChange{out: {}, set(0): {Added: []netip.Prefix{denied}}}
			for _, id := range five[1:] {
				sets[id] = &model.SetChange{}
			}
			update(test.before, sets)
			update(test.after, map[model.SetID]*model.SetChange{set(0): {Removed: []netip.Prefix{denied}}, out: {Added: []netip.Prefix{netip.MustParsePrefix("20.0.0.0/8")}}})
			v, bound, err := w.k.judge(id, model.Ingress, model.Packet{Src: denied.Addr(), Dst: netip.MustParseAddr("10.0.0.1"), Protocol: model.ProtoTCP, DstPort: 80})
			if err != nil || bound != test.bound || v.Allow && test.after.Refused == "" {
				t.Errorf("bound %t, want %t; %+v, %v", bound, test.bound, v, err)
			}
		})
	}
}
