package calico

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Object is what all kinds begin with. Status is not used here; it is a field that manifests read back from a cluster have.
type Object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Status            json.RawMessage `json:"status,omitempty"`

	stored  bool
	unknown []string
}

// MarkStored says that a datastore has checked the object, and which of its fields are not known here, by their paths. An
// empty path stands for fields anywhere in it.
func (o *Object) MarkStored(unknown []string) { o.stored, o.unknown = true, unknown }

// Tier is a Tier.
type Tier struct {
	Object
	Spec *TierSpec `json:"spec"`
}

// TierSpec is the spec of a Tier.
type TierSpec struct {
	Order         *float64 `json:"order,omitempty"`
	DefaultAction *string  `json:"defaultAction,omitempty"`
}

// NetworkSet is a NetworkSet or a GlobalNetworkSet.
type NetworkSet struct {
	Object
	Spec NetworkSetSpec `json:"spec"`
}

// NetworkSetSpec is the spec of a NetworkSet or a GlobalNetworkSet.
type NetworkSetSpec struct {
	Nets []string `json:"nets,omitempty"`
}

// NetworkPolicy is a NetworkPolicy.
type NetworkPolicy struct {
	Object
	Spec *PolicySpec `json:"spec"`
}

// GlobalNetworkPolicy is a GlobalNetworkPolicy.
type GlobalNetworkPolicy struct {
	Object
	Spec *GlobalSpec `json:"spec"`
}

// Profile is a Profile.
type Profile struct {
	Object
	Spec *ProfileSpec `json:"spec"`
}

// ProfileSpec is the spec of a Profile.
type ProfileSpec struct {
	Ingress       []Rule            `json:"ingress,omitempty"`
	Egress        []Rule            `json:"egress,omitempty"`
	LabelsToApply map[string]string `json:"labelsToApply,omitempty"`
}

// PolicySpec has the fields that the specs of all policies have, and all fields of a NetworkPolicy.
type PolicySpec struct {
	Tier                   string   `json:"tier,omitempty"`
	Order                  *float64 `json:"order,omitempty"`
	Selector               string   `json:"selector,omitempty"`
	ServiceAccountSelector string   `json:"serviceAccountSelector,omitempty"`
	Types                  []string `json:"types,omitempty"`
	Ingress                []Rule   `json:"ingress,omitempty"`
	Egress                 []Rule   `json:"egress,omitempty"`
	// PerformanceHints never change a verdict, and nothing here uses them.
	PerformanceHints []string `json:"performanceHints,omitempty"`
}

// GlobalSpec is the spec of a GlobalNetworkPolicy.
type GlobalSpec struct {
	PolicySpec        `json:",inline"`
	NamespaceSelector string `json:"namespaceSelector,omitempty"`
	DoNotTrack        bool   `json:"doNotTrack,omitempty"`
	PreDNAT           bool   `json:"preDNAT,omitempty"`
	ApplyOnForward    bool   `json:"applyOnForward,omitempty"`
}
