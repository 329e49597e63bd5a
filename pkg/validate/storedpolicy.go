package validate

import (
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/margay-project/margay/pkg/model"
)

// StoredNetworkPolicy is a Kubernetes NetworkPolicy as an API server has it, with the fields that are not known here: those of a
// newer version of the API. The types of client-go lose them, and the binary encoding does, too, so it is decoded from JSON.
type StoredNetworkPolicy struct {
	networkingv1.NetworkPolicy
	unknown  []string // paths, see DecodeStored
	problems []Problem
}

// UnmarshalJSON implements json.Unmarshaler. A text that cannot be read is a problem of the object, and no error: one object
// must not spoil a list.
func (p *StoredNetworkPolicy) UnmarshalJSON(text []byte) error {
	*p = StoredNetworkPolicy{}
	unknown, problems, ok := decodeStored(&p.NetworkPolicy, text, Ref{Kind: "NetworkPolicy"})
	if p.unknown = unknown; !ok {
		p.problems = problems
	}
	return nil
}

// DeepCopyObject implements runtime.Object.
func (p *StoredNetworkPolicy) DeepCopyObject() runtime.Object {
	clone := *p
	p.NetworkPolicy.DeepCopyInto(&clone.NetworkPolicy)
	return &clone
}

// StoredNetworkPolicyList is a list of them.
type StoredNetworkPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []StoredNetworkPolicy `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *StoredNetworkPolicyList) DeepCopyObject() runtime.Object {
	clone := &StoredNetworkPolicyList{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	for i := range l.Items {
		clone.Items = append(clone.Items, *l.Items[i].DeepCopyObject().(*StoredNetworkPolicy))
	}
	return clone
}

// NetworkPolicyOfServer is NetworkPolicyStored for an object that was decoded as a StoredNetworkPolicy.
func NetworkPolicyOfServer(p *StoredNetworkPolicy) (model.PolicyUpdate, []Problem, bool) {
	if p.problems == nil {
		return NetworkPolicyStored(&p.NetworkPolicy, p.unknown)
	}
	update := model.PolicyUpdate{Key: networkPolicyKey(&p.NetworkPolicy)}
	rep := NewReport(Ref{Kind: "NetworkPolicy", Namespace: p.Namespace, Name: p.Name})
	for _, problem := range p.problems {
		rep.Add(problem.Severity, problem.Field, "%s", problem.Reason)
	}
	return update, rep.Done(), false
}
