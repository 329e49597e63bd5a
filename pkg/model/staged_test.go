package model

import "testing"

// A staged policy is of a kind of its own, which names, traces and rule ids carry, and stands for an enforced one.
func TestStagedKinds(t *testing.T) {
	for _, test := range []struct {
		kind, enforced PolicyKind
		short          string
	}{
		{KindStagedNetworkPolicy, KindNetworkPolicy, "snp"},
		{KindStagedGlobalNetworkPolicy, KindGlobalNetworkPolicy, "sgnp"},
		{KindStagedKubernetesNetworkPolicy, KindKubernetesNetworkPolicy, "sknp"},
		{KindNetworkPolicy, KindNetworkPolicy, "np"},
	} {
		key := PolicyKey{Kind: test.kind, Namespace: "shop", Name: "db"}
		if got, ok := (PolicyKey{Kind: test.enforced, Namespace: "shop", Name: "db"}).Staging(); !ok || got != key && key.Kind != test.enforced {
			t.Errorf("%v, %t stands for %s", got, ok, test.enforced)
		}
		if got, want := key.Enforced(), (PolicyKey{Kind: test.enforced, Namespace: "shop", Name: "db"}); got != want {
			t.Errorf("%v stands for %v, want %v", key, got, want)
		}
		if got, want := key.String(), test.short+"/shop/db"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		id := RuleID{Point: AtRule, Tier: "default", Policy: key, Index: 2}
		if back, ok := ParseRuleID(id.String(), Ingress); !ok || back != id {
			t.Errorf("%s is read as %v, %v", id, back, ok)
		}
	}
	for a, text := range map[StagedAction]string{StagedSet: "Set", StagedDelete: "Delete", StagedLearn: "Learn", StagedIgnore: "Ignore"} {
		if a.String() != text {
			t.Errorf("%v, want %s", a, text)
		}
	}
}

// No two kinds share a name or an abbreviation, by which rule ids are read back.
func TestPolicyKindsDiffer(t *testing.T) {
	seen := map[string]PolicyKind{}
	for _, k := range PolicyKinds() {
		for _, name := range []string{string(k), k.Short()} {
			if other, ok := seen[name]; ok {
				t.Errorf("%q is %v and %v", name, other, k)
			}
			seen[name] = k
		}
	}
}
