package explain_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/margay-project/margay/pkg/explain"
	"github.com/margay-project/margay/pkg/model"
)

// A step that a packet may reach is not called out of reach, and one behind rules or tiers that decide every packet is.
func TestOrderSaysWhatIsNotReached(t *testing.T) {
	tcp := uint8(6)
	rule := func(a model.Action) model.Rule { return model.Rule{Action: a, Protocol: &tcp} }
	every := func(a model.Action) model.Rule { return model.Rule{Action: a, Index: 1} }
	const (
		byEnd  = "not reached: the end of tier first denies"
		byRule = "not reached: GlobalNetworkPolicy one ingress[1] "
		none   = "staged, not enforced"
	)
	tests := map[string]struct {
		first         []model.Rule
		staged        bool
		defaultAction model.Action
		second        string // of the tier's second policy, of its end, of the next tier's policy
		end           string
		next          string
	}{
		"rules that decide some packets": {first: []model.Rule{rule(model.Allow), rule(model.Deny)}, next: byEnd},
		"a rule that passes":             {first: []model.Rule{rule(model.Pass)}},
		"default action Pass":            {first: []model.Rule{rule(model.Allow)}, defaultAction: model.Pass},
		"every packet allowed": {first: []model.Rule{rule(model.Deny), every(model.Allow)},
			second: byRule + "allows every packet", end: byRule + "allows every packet", next: byRule + "allows every packet"},
		"every packet denied, default action Pass": {first: []model.Rule{every(model.Deny)}, defaultAction: model.Pass,
			second: byRule + "denies every packet", end: byRule + "denies every packet", next: byRule + "denies every packet"},
		"every packet passed": {first: []model.Rule{every(model.Pass)},
			second: byRule + "passes every packet", end: byRule + "passes every packet"},
		"some passed before every packet is denied": {first: []model.Rule{rule(model.Pass), every(model.Deny)},
			second: byRule + "denies every packet", end: byRule + "denies every packet"},
		"a rule that passes behind one that decides": {first: []model.Rule{every(model.Deny), rule(model.Pass)},
			second: byRule + "denies every packet", end: byRule + "denies every packet", next: byRule + "denies every packet"},
		"logged, which decides nothing": {first: []model.Rule{every(model.Log)}, next: byEnd},
		"http, which never matches":     {first: []model.Rule{{Action: model.Allow, Unmatchable: "http"}}, next: byEnd},
		"staged":                        {first: []model.Rule{every(model.Deny)}, staged: true, next: byEnd},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.defaultAction == 0 {
				tt.defaultAction = model.Deny
			}
			policy := func(name, tier string, order float64, staged bool, rules ...model.Rule) model.Update {
				return model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: name}, Policy: &model.Policy{
					Tier: tier, Order: order, Selector: mustSelector(t, "all()"), AppliesIngress: true, Staged: staged, Ingress: rules}}
			}
			state := explain.NewState([]model.Update{
				model.EndpointUpdate{ID: model.WorkloadID("shop", "web"), Endpoint: &model.Endpoint{
					Node: "n", Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}},
				model.TierUpdate{Name: "first", Tier: &model.Tier{Order: 1, Default: tt.defaultAction}},
				model.TierUpdate{Name: "next", Tier: &model.Tier{Order: 2, Default: model.Deny}},
				policy("one", "first", 1, tt.staged, tt.first...), policy("two", "first", 2, false, rule(model.Allow)),
				policy("three", "next", 1, false, rule(model.Allow)),
			})
			rows, err := state.Order(model.WorkloadID("shop", "web"))
			if err != nil {
				t.Fatal(err)
			}
			first := ""
			if tt.staged {
				first = none
			}
			want := []string{first, tt.second, tt.end, tt.next}
			var got []string
			for _, r := range rows[:len(want)] {
				got = append(got, r.NoEffect)
			}
			if !slices.Equal(got, want) {
				t.Errorf("no effect, of the policies one and two, the end of the tier and the next tier's policy:\ngot  %q\nwant %q", got, want)
			}
		})
	}
}
