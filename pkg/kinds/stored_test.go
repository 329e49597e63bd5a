package kinds

import (
	"encoding/json"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/margay-project/margay/pkg/validate"
)

// policies is a list as a server has it, with what it keeps for itself.
func policies(n int) *networkingv1.NetworkPolicyList {
	list := &networkingv1.NetworkPolicyList{}
	for i := range n {
		p := networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("policy-", i), Namespace: "shop", UID: "0a1b2c3d-0000-1111-2222-333344445555",
			ResourceVersion: fmt.Sprint(1000 + i), ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl-client-side-apply", Operation: "Update", APIVersion: "networking.k8s.io/v1",
				FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{".":{},"f:a":{}}},"f:spec":{"f:ingress":{},"f:podSelector":{},"f:policyTypes":{}}}`)}}}}
		p.Spec.PodSelector.MatchLabels = map[string]string{"app": fmt.Sprint("app-", i)}
		p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		tcp, port := corev1.ProtocolTCP, intstr.FromInt32(8080)
		for j := range 3 {
			p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{
				From:  []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint("peer-", j)}}}},
				Ports: []networkingv1.NetworkPolicyPort{{Protocol: &tcp, Port: &port}}})
		}
		list.Items = append(list.Items, p)
	}
	return list
}

// BenchmarkNetworkPoliciesOfAServer is what a list of 1,000 costs: in the binary encoding, which loses unknown fields, and in JSON.
func BenchmarkNetworkPoliciesOfAServer(b *testing.B) {
	list := policies(1000)
	binary, err := list.Marshal()
	if err != nil {
		b.Fatal(err)
	}
	text, err := json.Marshal(list)
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("%d bytes, in JSON %d", len(binary), len(text))
	b.Run("binary", func(b *testing.B) {
		for b.Loop() {
			got := &networkingv1.NetworkPolicyList{}
			if err := got.Unmarshal(binary); err != nil || len(got.Items) != 1000 {
				b.Fatal(err)
			}
			for i := range got.Items {
				if _, _, ok := validate.NetworkPolicy(&got.Items[i]); !ok {
					b.Fatal("not ok")
				}
			}
		}
	})
	b.Run("JSON", func(b *testing.B) {
		for b.Loop() {
			got := &validate.StoredNetworkPolicyList{}
			if err := json.Unmarshal(text, got); err != nil || len(got.Items) != 1000 {
				b.Fatal(err)
			}
			for i := range got.Items {
				if _, _, ok := validate.NetworkPolicyOfServer(&got.Items[i]); !ok {
					b.Fatal("not ok")
				}
			}
		}
	})
}
