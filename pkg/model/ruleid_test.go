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

// TestIDsOfStagedRulesAreRead: as their text, by the direction in it.
func TestIDsOfStagedRulesAreRead(t *testing.T) {
	key := PolicyKey{Kind: KindStagedNetworkPolicy, Namespace: "shop", Name: "db"}
	for text, id := range map[string]RuleID{
		"staged:ingress:t/snp/shop/db#ingress[3]":        {Point: AtRule, Tier: "t", Policy: key, Index: 3, Staged: true},
		"staged:egress:t/snp/shop/db#end-of-tier":        {Point: AtEndOfTier, Direction: Egress, Tier: "t", Policy: key, Staged: true},
		"staged:ingress:t/snp/shop/db#denied behind it":  {Point: AtBehind, Tier: "t", Policy: key, Staged: true},
		"staged:ingress:t/snp/shop/db#allowed behind it": {Point: AtBehind, Tier: "t", Policy: key, Index: 1, Staged: true},
	} {
		if id.String() != text {
			t.Errorf("%+v is %q, want %q", id, id.String(), text)
		}
		d, staged := StagedRule(text)
		if got, ok := ParseRuleID(text, d); !staged || !ok || got != id {
			t.Errorf("%q is %+v (%t), direction %s (%t)", text, got, ok, d, staged)
		}
	}
}
