package model

import "testing"

func TestParseRuleID(t *testing.T) {
	for _, text := range []string{"default/knp/shop/db#ingress[0]", "default/knp/shop/db#end-of-tier", "default/gnp/deny-all#ingress[12]",
		"sec/np/shop/x#ingress[3]", "kube-admin/kcnp/all#end-of-tier", "profile/kns.shop#ingress[0]", "no-profile-match", "self", "host"} {
		id, ok := ParseRuleID(text, Ingress)
		if !ok || id.String() != text || id.Direction != Ingress {
			t.Errorf("%s: %+v, %v", text, id, ok)
		}
	}
	want := RuleID{Point: AtRule, Direction: Egress, Tier: "default", Policy: PolicyKey{KindKubernetesNetworkPolicy, "shop", "db"}, Index: 7}
	if got, ok := ParseRuleID(want.String(), Egress); !ok || got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	for _, text := range []string{"", "x", "default/knp/shop/db", "default/knp/shop/db#egress[0]", "default/knp/shop/db#ingress[x]",
		"default/other/shop/db#ingress[0]", "default/knp/shop/db~abcdef", "#ingress[0]", "a/b/c/d/e#ingress[0]"} {
		if id, ok := ParseRuleID(text, Ingress); ok {
			t.Errorf("%q is %+v", text, id)
		}
	}
}
