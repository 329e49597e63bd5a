package explain_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/pkg/explain"
	"github.com/margay-project/margay/pkg/model"
)

// ordered is a pod with policies of every reason to stand where they stand.
func ordered(t *testing.T) *explain.State {
	all := mustSelector(t, "all()")
	policy := func(kind model.PolicyKind, namespace, name, tier string, order float64, staged bool, rules ...model.Rule) model.Update {
		return model.PolicyUpdate{Key: model.PolicyKey{Kind: kind, Namespace: namespace, Name: name}, Policy: &model.Policy{
			Tier: tier, Order: order, Selector: all, AppliesIngress: true, Staged: staged, Ingress: rules}}
	}
	tcp := uint8(6)
	allow := model.Rule{Action: model.Allow, Protocol: &tcp}
	second := model.Rule{Action: model.Deny, Protocol: &tcp, Index: 1}
	return explain.NewState([]model.Update{
		model.EndpointUpdate{ID: model.WorkloadID("shop", "web-1"), Endpoint: &model.Endpoint{
			Node: "n", Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Profiles: []string{"kns.shop", "more"}}},
		model.EndpointUpdate{ID: model.WorkloadID("shop", "web-2"), Endpoint: &model.Endpoint{
			Node: "n", Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.2")}}},
		model.ProfileUpdate{Name: "kns.shop", Profile: &model.Profile{Ingress: []model.Rule{allow}}},
		model.ProfileUpdate{Name: "more", Profile: &model.Profile{Ingress: []model.Rule{{Action: model.Deny, Protocol: &tcp}}}},
		model.TierUpdate{Name: "a", Tier: &model.Tier{Order: 5, Default: model.Pass}},
		model.TierUpdate{Name: "b", Tier: &model.Tier{Order: 5, Default: model.Deny}},
		policy(model.KindGlobalNetworkPolicy, "", "z", "a", 1, false, allow, allow, second), // the first rule has two parts
		policy(model.KindGlobalNetworkPolicy, "", "draft", "b", 0.5, true, second),
		policy(model.KindNetworkPolicy, "shop", "same", "default", 1000, false),
		policy(model.KindKubernetesNetworkPolicy, "shop", "same", "default", 1000, false, allow),
		policy(model.KindStagedNetworkPolicy, "shop", "same", "b", 1, true, allow),
		model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindStagedGlobalNetworkPolicy, Name: "late"}, Policy: &model.Policy{
			Tier: "default", Order: model.NoOrder, Selector: all, Staged: true, StagedAction: model.StagedDelete}},
		policy(model.KindGlobalNetworkPolicy, "", "late", "default", model.NoOrder, false),
		policy(model.KindGlobalNetworkPolicy, "", "lost", "gone", 1, false),
	})
}

func TestOrderListsEveryStepAndWhyItStandsThere(t *testing.T) {
	state := ordered(t)
	rows, err := state.Order(model.WorkloadID("shop", "web-1"))
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, r := range rows {
		mark := ""
		if r.Staged {
			mark = " staged"
		}
		why := r.Why
		if r.NoEffect != "" {
			why += "; " + r.NoEffect
		}
		fmt.Fprintf(&got, "%s %s %s|%s%s %d rules %s|%s\n", r.Direction, r.Tier, r.Step, strings.TrimSpace(r.Kind+" "+r.Name), mark, r.Rules, r.Action, why)
	}
	behind := "; not reached: the end of tier default denies"
	want := `ingress a policy|GlobalNetworkPolicy z 2 rules |tier order 5
ingress a end of tier| 0 rules Pass|its default action
ingress b policy|GlobalNetworkPolicy draft staged 1 rules |tier order 5 as tier a, whose name is before its; staged, not enforced
ingress b policy|StagedNetworkPolicy same staged 1 rules |order 1, behind 0.5; staged, not enforced
ingress b end of tier| 0 rules Pass|its policies are staged only, so it denies nothing
ingress default policy|NetworkPolicy same 1 rules |tier order 1000000, behind 5
ingress default policy|NetworkPolicy same 0 rules |order 1000 as the one before: by name/namespace/kind, same/shop/NetworkPolicy is behind same/shop/KubernetesNetworkPolicy
ingress default policy|GlobalNetworkPolicy late 0 rules |order none, behind 1000
ingress default policy|StagedGlobalNetworkPolicy late staged 0 rules |beside the policy that it stands for; staged: GlobalNetworkPolicy late would not apply
ingress default end of tier| 0 rules Deny|its default action, for what no rule of its policies decides
ingress gone policy|GlobalNetworkPolicy lost 0 rules |tier gone does not exist: behind all that do` + behind + `
ingress gone end of tier| 0 rules Deny|its default action, for what no rule of its policies decides` + behind + `
ingress  profile|Profile kns.shop 1 rules |behind all tiers` + behind + `
ingress  profile|Profile more 1 rules |as the pod lists its profiles` + behind + `
ingress  end| 0 rules Deny|no rule of a profile matches` + behind + `
egress  end| 0 rules Deny|no rule of a profile matches
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if rows[0].TierOrder == nil || *rows[0].TierOrder != 5 || rows[7].Order != nil || rows[10].TierOrder != nil {
		t.Errorf("orders: %v, %v, %v", rows[0].TierOrder, rows[7].Order, rows[10].TierOrder)
	}
}

func TestOrderIsOfOnePod(t *testing.T) {
	state := ordered(t)
	for text, want := range map[string]string{"shop/web-1": "shop/web-1", "10.0.0.2": "shop/web-2", "web-2": "shop/web-2"} {
		if pod, err := state.FindPod(text, "shop"); err != nil || pod.String() != want {
			t.Errorf("%s: %s, %v", text, pod, err)
		}
	}
	for text, want := range map[string]string{"shop/web": "the names of 2 pods begin with it", "192.0.2.1": "is no pod", "shop/x": "no pod shop/x"} {
		if _, err := state.FindPod(text, "shop"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
