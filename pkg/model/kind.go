package model

// API is what users call a kind of policy: its API version, if it has one, and kind.
func (k PolicyKind) API() (apiVersion, kind string) {
	switch k {
	case KindKubernetesNetworkPolicy:
		return "networking.k8s.io/v1", "NetworkPolicy"
	case KindKubernetesClusterNetworkPolicy:
		return "policy.networking.k8s.io/v1alpha2", "ClusterNetworkPolicy"
	case KindNetworkPolicy:
		return "projectcalico.org/v3", "NetworkPolicy"
	case KindGlobalNetworkPolicy:
		return "projectcalico.org/v3", "GlobalNetworkPolicy"
	case KindStagedNetworkPolicy, KindStagedGlobalNetworkPolicy, KindStagedKubernetesNetworkPolicy:
		return "projectcalico.org/v3", string(k)
	}
	return "", string(k)
}

// TierText names a tier, and what objects of the kind call it if that is another name: "kube-admin (Admin)".
func (k PolicyKind) TierText(tier string) string {
	switch {
	case k == KindKubernetesClusterNetworkPolicy && tier == TierKubeAdmin:
		return tier + " (Admin)"
	case k == KindKubernetesClusterNetworkPolicy && tier == TierKubeBaseline:
		return tier + " (Baseline)"
	}
	return tier
}

// ObjectText is what users call the policy: "NetworkPolicy shop/db", "GlobalNetworkPolicy deny-all".
func (k PolicyKey) ObjectText() string {
	_, kind := k.Kind.API()
	if k.Namespace != "" {
		return kind + " " + k.Namespace + "/" + k.Name
	}
	return kind + " " + k.Name
}
