package corpus

import (
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/margay-project/margay/internal/oracle"
)

// DrawKubernetes draws a cluster with NetworkPolicies and ClusterNetworkPolicies as the Kubernetes API would accept them.
func DrawKubernetes(t *rapid.T) *oracle.Kubernetes {
	k := &oracle.Kubernetes{}
	for i := range 2 {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node%d", i), Labels: drawKubernetesLabels(t)}}
		for _, a := range nodeAddrs(i) {
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a.String()})
		}
		k.Nodes = append(k.Nodes, n)
	}
	for _, name := range namespaces {
		labels := drawKubernetesLabels(t)
		labels["kubernetes.io/metadata.name"] = name
		k.Namespaces = append(k.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	}
	for _, i := range upTo(t, 1, 9, "pods") {
		k.Pods = append(k.Pods, drawPod(t, i))
	}
	for _, i := range upTo(t, 0, 5, "policies") {
		k.Policies = append(k.Policies, drawNetworkPolicy(t, i))
	}
	for _, i := range upTo(t, 0, 4, "cluster policies") {
		k.ClusterPolicies = append(k.ClusterPolicies, drawClusterPolicy(t, i))
	}
	return k
}

// Documents are the cluster's objects as YAML manifests.
func Documents(k *oracle.Kubernetes) ([][]byte, error) {
	var docs [][]byte
	add := func(apiVersion, kind string, object runtime.Object) error {
		b, err := yaml.Marshal(object)
		if err != nil {
			return fmt.Errorf("encode %s: %w", kind, err)
		}
		docs = append(docs, append(fmt.Appendf(nil, "apiVersion: %s\nkind: %s\n", apiVersion, kind), b...))
		return nil
	}
	for _, n := range k.Nodes {
		if err := add("v1", "Node", n); err != nil {
			return nil, err
		}
	}
	for _, n := range k.Namespaces {
		if err := add("v1", "Namespace", n); err != nil {
			return nil, err
		}
	}
	for _, p := range k.Pods {
		if err := add("v1", "Pod", p); err != nil {
			return nil, err
		}
	}
	for _, p := range k.Policies {
		if err := add("networking.k8s.io/v1", "NetworkPolicy", p); err != nil {
			return nil, err
		}
	}
	for _, p := range k.ClusterPolicies {
		if err := add(v1alpha2.GroupVersion.String(), "ClusterNetworkPolicy", p); err != nil {
			return nil, err
		}
	}
	return docs, nil
}

func drawKubernetesLabels(t *rapid.T) map[string]string {
	return rapid.MapOfN(rapid.SampledFrom([]string{"a", "b"}), rapid.SampledFrom(labelValues), 0, 2).Draw(t, "labels")
}

func drawPod(t *rapid.T, i int) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: one(t, namespaces, "namespace"), Name: fmt.Sprintf("pod%d", i), Labels: drawKubernetesLabels(t),
		},
		Spec:   corev1.PodSpec{NodeName: fmt.Sprintf("node%d", i%2), Containers: []corev1.Container{drawContainer(t, "main")}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	if chance(t, 4, "init container") {
		p.Spec.InitContainers = []corev1.Container{drawContainer(t, "init")}
	}
	if chance(t, 8, "finished") {
		p.Status.Phase = one(t, []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed}, "phase")
	}
	n := i + 1
	if chance(t, 8, "terminating") {
		p.DeletionTimestamp = &metav1.Time{Time: time.Unix(0, 0)}
		if chance(t, 2, "address goes to the next one") {
			n++
		}
	}
	addrs := []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}), netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(n)})}
	switch rapid.IntRange(0, 4).Draw(t, "families") {
	case 1:
		addrs = addrs[:1]
	case 2:
		addrs = addrs[1:]
	}
	if chance(t, 8, "host network") {
		p.Spec.HostNetwork, addrs = true, nodeAddrs(i%2)
	}
	if !chance(t, 12, "no address") {
		p.Status.PodIP = addrs[0].String()
		for _, a := range addrs {
			if chance(t, 10, "only podIP") {
				break
			}
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a.String()})
		}
	}
	return p
}

// drawContainer leaves a port without a name now and then; the names of one container differ, as the API demands.
func drawContainer(t *rapid.T, name string) corev1.Container {
	c := corev1.Container{Name: name, Image: "x"}
	for _, n := range rapid.SliceOfNDistinct(rapid.SampledFrom(append([]string{""}, portNames...)), 0, 3, rapid.ID[string]).Draw(t, "port names") {
		c.Ports = append(c.Ports, corev1.ContainerPort{
			Name:          n,
			ContainerPort: int32(max(1, one(t, numbers, "port"))),
			Protocol:      one(t, []corev1.Protocol{"", corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}, "protocol"),
		})
	}
	return c
}

func drawNetworkPolicy(t *rapid.T, i int) *networkingv1.NetworkPolicy {
	np := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: one(t, namespaces, "namespace"), Name: fmt.Sprintf("np%d", i)},
		Spec:       networkingv1.NetworkPolicySpec{PodSelector: drawLabelSelector(t)},
	}
	if !chance(t, 3, "no types") {
		np.Spec.PolicyTypes = one(t, [][]networkingv1.PolicyType{
			{networkingv1.PolicyTypeIngress}, {networkingv1.PolicyTypeEgress},
			{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
		}, "types")
	}
	for range upTo(t, 0, 3, "ingress") {
		np.Spec.Ingress = append(np.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: drawPeers(t), Ports: drawPolicyPorts(t)})
	}
	for range upTo(t, 0, 3, "egress") {
		np.Spec.Egress = append(np.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: drawPeers(t), Ports: drawPolicyPorts(t)})
	}
	return np
}

func drawLabelSelector(t *rapid.T) metav1.LabelSelector {
	var s metav1.LabelSelector
	if chance(t, 2, "match labels") {
		s.MatchLabels = rapid.MapOfN(rapid.SampledFrom([]string{"a", "b"}), rapid.SampledFrom(labelValues), 1, 2).Draw(t, "match labels")
	}
	for range upTo(t, 0, 2, "expressions") {
		r := metav1.LabelSelectorRequirement{
			Key: one(t, []string{"a", "b"}, "key"),
			Operator: one(t, []metav1.LabelSelectorOperator{
				metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist,
			}, "operator"),
		}
		if r.Operator == metav1.LabelSelectorOpIn || r.Operator == metav1.LabelSelectorOpNotIn {
			r.Values = rapid.SliceOfN(rapid.SampledFrom(labelValues), 1, 2).Draw(t, "values")
		}
		s.MatchExpressions = append(s.MatchExpressions, r)
	}
	return s
}

func drawPeers(t *rapid.T) []networkingv1.NetworkPolicyPeer {
	var peers []networkingv1.NetworkPolicyPeer
	for range upTo(t, 0, 3, "peers") {
		var p networkingv1.NetworkPolicyPeer
		kind := rapid.IntRange(0, 3).Draw(t, "peer")
		if kind == 3 {
			peers = append(peers, networkingv1.NetworkPolicyPeer{IPBlock: drawBlock(t)})
			continue
		}
		if kind != 1 {
			s := drawLabelSelector(t)
			p.PodSelector = &s
		}
		if kind != 0 {
			s := drawLabelSelector(t)
			if chance(t, 4, "by name") {
				s = metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": one(t, namespaces, "namespace")}}
			}
			p.NamespaceSelector = &s
		}
		peers = append(peers, p)
	}
	return peers
}

// drawBlock: the API wants exceptions strictly inside the block.
func drawBlock(t *rapid.T) *networkingv1.IPBlock {
	cidr := one(t, prefixes, "cidr")
	b := &networkingv1.IPBlock{CIDR: cidr.String()}
	for _, e := range some(t, prefixes, 4, "except") {
		if e.Bits() > cidr.Bits() && cidr.Contains(e.Addr()) {
			b.Except = append(b.Except, e.String())
		}
	}
	return b
}

func drawPolicyPorts(t *rapid.T) []networkingv1.NetworkPolicyPort {
	var ports []networkingv1.NetworkPolicyPort
	for range upTo(t, 0, 3, "ports") {
		var p networkingv1.NetworkPolicyPort
		if !chance(t, 3, "no protocol") {
			proto := one(t, []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}, "protocol")
			p.Protocol = &proto
		}
		switch rapid.IntRange(0, 4).Draw(t, "port kind") {
		case 0:
		case 1, 2:
			v := intstr.FromString(one(t, portNames, "name"))
			p.Port = &v
		default:
			lo := max(1, one(t, numbers, "port"))
			v := intstr.FromInt32(int32(lo))
			p.Port = &v
			if hi := one(t, numbers, "end port"); hi >= lo && chance(t, 2, "range") {
				end := int32(hi)
				p.EndPort = &end
			}
		}
		ports = append(ports, p)
	}
	return ports
}
