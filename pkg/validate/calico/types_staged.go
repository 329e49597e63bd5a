package calico

import networkingv1 "k8s.io/api/networking/v1"

// StagedNetworkPolicy is a StagedNetworkPolicy.
type StagedNetworkPolicy struct {
	Object
	Spec *StagedSpec `json:"spec"`
}

// StagedSpec is the spec of a StagedNetworkPolicy.
type StagedSpec struct {
	StagedAction string `json:"stagedAction,omitempty"`
	PolicySpec   `json:",inline"`
}

// StagedGlobalNetworkPolicy is a StagedGlobalNetworkPolicy.
type StagedGlobalNetworkPolicy struct {
	Object
	Spec *StagedGlobalSpec `json:"spec"`
}

// StagedGlobalSpec is the spec of a StagedGlobalNetworkPolicy.
type StagedGlobalSpec struct {
	StagedAction string `json:"stagedAction,omitempty"`
	GlobalSpec   `json:",inline"`
}

// StagedKubernetesNetworkPolicy is a StagedKubernetesNetworkPolicy.
type StagedKubernetesNetworkPolicy struct {
	Object
	Spec *StagedKubernetesSpec `json:"spec"`
}

// StagedKubernetesSpec is the spec of a StagedKubernetesNetworkPolicy.
type StagedKubernetesSpec struct {
	StagedAction                   string `json:"stagedAction,omitempty"`
	networkingv1.NetworkPolicySpec `json:",inline"`
}
