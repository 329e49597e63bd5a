package model

import "testing"

// Users of ClusterNetworkPolicy know the tiers by its own names.
func TestTiersHaveTheNamesOfTheirUsers(t *testing.T) {
	for _, test := range []struct {
		kind       PolicyKind
		tier, want string
	}{
		{KindKubernetesClusterNetworkPolicy, TierKubeAdmin, "kube-admin (Admin)"},
		{KindKubernetesClusterNetworkPolicy, TierKubeBaseline, "kube-baseline (Baseline)"},
		{KindGlobalNetworkPolicy, TierKubeAdmin, "kube-admin"},
		{KindGlobalNetworkPolicy, "sec", "sec"},
	} {
		if got := test.kind.TierText(test.tier); got != test.want {
			t.Errorf("%s calls %s %q, want %q", test.kind, test.tier, got, test.want)
		}
	}
}
