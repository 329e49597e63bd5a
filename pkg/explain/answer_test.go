package explain_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/margay-project/margay/pkg/explain"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

func mustSelector(t *testing.T, text string) *selector.Selector {
	t.Helper()
	s, err := selector.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSidesNameTheDecidingObject uses what no manifest reaches yet: tiers, Pass, kinds of policy.
func TestSidesNameTheDecidingObject(t *testing.T) {
	all := mustSelector(t, "all()")
	pod := func(name, addr string, profiles ...string) model.Update {
		return model.EndpointUpdate{ID: model.WorkloadID("shop", name), Endpoint: &model.Endpoint{
			Node: "n", Iface: "cali" + name, Addrs: []netip.Addr{netip.MustParseAddr(addr)}, Labels: map[string]string{"app": name}, Profiles: profiles,
		}}
	}
	updates := []model.Update{
		pod("a", "10.0.0.1", "kns.shop"), pod("b", "10.0.0.2"),
		model.ProfileUpdate{Name: "kns.shop", Profile: &model.Profile{Ingress: []model.Rule{{Action: model.Allow}}}},
		model.TierUpdate{Name: "sec", Tier: &model.Tier{Order: 1, Default: model.Deny}},
		model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "gate"}, Policy: &model.Policy{
			Tier: "sec", Selector: all, AppliesIngress: true,
			Ingress: []model.Rule{{Action: model.Deny, Name: "no partners", Source: model.Entity{Nets: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}}, {Action: model.Pass, Index: 1}},
		}},
		model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: "shop", Name: "draft"}, Policy: &model.Policy{
			Tier: "sec", Selector: all, AppliesIngress: true, Staged: true,
		}},
	}
	for _, test := range []struct {
		src, dst string
		want     explain.Side // ingress, without tiers
	}{
		{"192.0.2.7", "shop/a:1", explain.Side{
			Verdict: "deny", APIVersion: "projectcalico.org/v3", Kind: "GlobalNetworkPolicy", Name: "gate", Rule: "ingress[0]", RuleName: "no partners", Tier: "sec",
			Decision: explain.DecisionRule, Reason: `by GlobalNetworkPolicy gate ingress[0] "no partners" in tier sec`,
		}},
		{"198.51.100.1", "shop/a:1", explain.Side{Verdict: "allow", Kind: "Profile", Name: "kns.shop", Rule: "ingress[0]",
			Decision: explain.DecisionNoPolicy, Reason: "every tier passes the packet on, and Namespace shop allows everything"}},
		{"198.51.100.1", "shop/b:1", explain.Side{Verdict: "deny", Rule: "no-profile-match",
			Decision: explain.DecisionNoPolicy, Reason: "every tier passes the packet on, and nothing else allows it (does its Namespace exist?)"}},
	} {
		r, err := explain.ParseRequest(test.src, test.dst)
		if err != nil {
			t.Fatal(err)
		}
		e, err := explain.NewState(updates).Explain(r)
		if err != nil {
			t.Fatal(err)
		}
		if e.Verdict != test.want.Verdict {
			t.Errorf("%s to %s: %s", test.src, test.dst, e.Verdict)
		}
		if diff := cmp.Diff(&test.want, e.Ingress, cmpopts.IgnoreFields(explain.Side{}, "Tiers", "Staged")); diff != "" {
			t.Errorf("%s to %s (-want +got):\n%s", test.src, test.dst, diff)
		}
		first := e.Ingress.Tiers[0].Policies[0]
		if !first.Staged || first.Name != "draft" || len(first.Rules) != 0 {
			t.Errorf("a staged policy is shown, and not considered: %+v", first)
		}
	}
}

// The type and code of a question about ICMP are those of the packet that rules judge.
func TestQuestionsAboutICMPAreAskedWithTypeAndCode(t *testing.T) {
	unreachable, code := model.ICMPMatch{Type: 3}, uint8(1) // of a host
	host, answer := model.ICMPMatch{Type: 3, Code: &code}, model.ICMPMatch{Type: 129}
	icmp, icmp6 := uint8(model.ProtoICMP), uint8(model.ProtoICMPv6)
	updates := []model.Update{
		model.EndpointUpdate{ID: model.WorkloadID("shop", "a"), Endpoint: &model.Endpoint{
			Node: "n", Iface: "calia", Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}, Labels: map[string]string{"app": "a"},
		}},
		model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: "shop", Name: "p"}, Policy: &model.Policy{
			Tier: model.TierDefault, Selector: mustSelector(t, "all()"), AppliesIngress: true, Ingress: []model.Rule{
				{Action: model.Deny, Protocol: &icmp, ICMP: &host}, {Action: model.Allow, Index: 1, Protocol: &icmp, ICMP: &unreachable},
				{Action: model.Allow, Index: 2, Protocol: &icmp6, ICMP: &answer},
			},
		}},
	}
	for _, test := range []struct{ src, dst, want string }{
		{"192.0.2.1", "shop/a/icmp", "deny"}, {"192.0.2.1", "shop/a/icmp:3", "allow"}, {"192.0.2.1", "shop/a/icmp:3:1", "deny"}, {"192.0.2.1", "shop/a/icmp:3:2", "allow"},
		{"2001:db8::1", "shop/a/icmpv6", "deny"}, {"2001:db8::1", "shop/a/icmpv6:129", "allow"},
	} {
		r, err := explain.ParseRequest(test.src, test.dst)
		if err != nil {
			t.Fatal(err)
		}
		if e, err := explain.NewState(updates).Explain(r); err != nil || e.Verdict != test.want {
			t.Errorf("%s to %s: %+v, %v; want %s", test.src, test.dst, e, err, test.want)
		}
	}
}
