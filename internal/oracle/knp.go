package oracle

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/margay-project/margay/pkg/model"
)

// Kubernetes is a cluster as its API describes it. It is judged by what the documentation of networking.k8s.io/v1
// NetworkPolicy and of policy.networking.k8s.io/v1alpha2 ClusterNetworkPolicy says, not by what Margay's conversion makes
// of them.
type Kubernetes struct {
	Policies        []*networkingv1.NetworkPolicy
	ClusterPolicies []*v1alpha2.ClusterNetworkPolicy
	Pods            []*corev1.Pod
	Namespaces      []*corev1.Namespace
	Nodes           []*corev1.Node

	// others reports whether an endpoint that is no pod has the address and declares the port: a name means these, too. Nil:
	// there are none.
	others func(name string, protocol corev1.Protocol, dst netip.Addr, number uint16) bool
}

// Allows reports whether the policies that select the pod let the packet pass in the direction: those of the Admin tier,
// then NetworkPolicies, then those of the Baseline tier; what none of them decides may pass. Where the documentation leaves
// a choice: a pod may always talk to itself, and its own node to it. A pod that is not known, or not on the pod
// network, has no say and the answer is false.
func (k *Kubernetes) Allows(id model.EndpointID, dir model.Direction, pkt model.Packet) bool {
	pod := k.pod(id)
	if pod != nil && dir == model.Ingress && k.isOfNode(pod.Spec.NodeName, pkt.Src) {
		return true
	}
	return k.AllowsForwarded(id, dir, pkt)
}

// AllowsForwarded is Allows for a packet that no node has made, though it may have the address of one.
func (k *Kubernetes) AllowsForwarded(id model.EndpointID, dir model.Direction, pkt model.Packet) bool {
	pod := k.pod(id)
	if pod == nil {
		return false
	}
	if k.has(pod, pkt.Src) && k.has(pod, pkt.Dst) {
		return true
	}
	if v := k.clusterTier(v1alpha2.AdminTier, pod, dir, pkt); v != undecided {
		return v == accepted
	}
	isolated := false
	for _, np := range k.Policies {
		if np.Namespace != pod.Namespace || !selects(&np.Spec.PodSelector, pod.Labels) || !policyHasType(np, dir) {
			continue
		}
		isolated = true
		if k.policyAllows(np, dir, pkt) {
			return true
		}
	}
	return !isolated && k.clusterTier(v1alpha2.BaselineTier, pod, dir, pkt) != denied
}

// pod returns the pod if it is on the pod network now.
func (k *Kubernetes) pod(id model.EndpointID) *corev1.Pod {
	for _, p := range k.Pods {
		if p.Namespace == id.Namespace && p.Name == id.Name && onPodNetwork(p) {
			return p
		}
	}
	return nil
}

// onPodNetwork: a pod that has finished has given its addresses back, and one that uses the host's network has none of
// its own: policies and selectors do not see it.
func onPodNetwork(p *corev1.Pod) bool {
	return !p.Spec.HostNetwork && p.Spec.NodeName != "" && len(podAddrs(p)) > 0 &&
		p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

// podAddrs: the addresses that a pod claims (semantics §13). Annotations say nothing here.
func podAddrs(p *corev1.Pod) []netip.Addr {
	var status []string
	for _, ip := range p.Status.PodIPs {
		status = append(status, ip.IP)
	}
	for _, texts := range [][]string{
		status,
		{p.Status.PodIP},
	} {
		var addrs []netip.Addr
		for _, t := range texts {
			t, _, _ = strings.Cut(strings.TrimSpace(t), "/")
			if a, err := netip.ParseAddr(t); err == nil {
				addrs = append(addrs, a.Unmap())
			}
		}
		if len(addrs) > 0 {
			return addrs
		}
	}
	return nil
}

// has reports whether the address is the pod's now: of the pods that claim it, those that are not being deleted come
// first, then the older; of two that are as old none has it.
func (k *Kubernetes) has(pod *corev1.Pod, a netip.Addr) bool {
	claims := func(p *corev1.Pod) bool { return onPodNetwork(p) && slices.Contains(podAddrs(p), a) }
	return claims(pod) && !slices.ContainsFunc(k.Pods, func(p *corev1.Pod) bool {
		if p.Namespace == pod.Namespace && p.Name == pod.Name || !claims(p) {
			return false
		}
		if (p.DeletionTimestamp == nil) != (pod.DeletionTimestamp == nil) {
			return pod.DeletionTimestamp != nil
		}
		return !pod.CreationTimestamp.Before(&p.CreationTimestamp)
	})
}

func (k *Kubernetes) isOfNode(name string, a netip.Addr) bool {
	for _, n := range k.Nodes {
		if n.Name != name {
			continue
		}
		for _, na := range n.Status.Addresses {
			if got, err := netip.ParseAddr(na.Address); err == nil && got.Unmap() == a {
				return true
			}
		}
	}
	return false
}

// policyHasType: "If this field is not specified, it will default based on the existence of ingress or egress rules;
// policies that contain an egress section are assumed to affect egress, and all policies (whether or not they contain
// an ingress section) are assumed to affect ingress."
func policyHasType(np *networkingv1.NetworkPolicy, dir model.Direction) bool {
	if len(np.Spec.PolicyTypes) == 0 {
		return dir == model.Ingress || len(np.Spec.Egress) > 0
	}
	want := networkingv1.PolicyTypeIngress
	if dir == model.Egress {
		want = networkingv1.PolicyTypeEgress
	}
	return slices.Contains(np.Spec.PolicyTypes, want)
}

// policyAllows: a rule matches traffic that matches both its peers and its ports; empty or missing means all.
func (k *Kubernetes) policyAllows(np *networkingv1.NetworkPolicy, dir model.Direction, pkt model.Packet) bool {
	if dir == model.Ingress {
		return slices.ContainsFunc(np.Spec.Ingress, func(r networkingv1.NetworkPolicyIngressRule) bool {
			return k.portsMatch(r.Ports, pkt) && k.peersMatch(np.Namespace, r.From, pkt.Src)
		})
	}
	return slices.ContainsFunc(np.Spec.Egress, func(r networkingv1.NetworkPolicyEgressRule) bool {
		return k.portsMatch(r.Ports, pkt) && k.peersMatch(np.Namespace, r.To, pkt.Dst)
	})
}

func (k *Kubernetes) peersMatch(namespace string, peers []networkingv1.NetworkPolicyPeer, remote netip.Addr) bool {
	if len(peers) == 0 {
		return true
	}
	return slices.ContainsFunc(peers, func(peer networkingv1.NetworkPolicyPeer) bool {
		if peer.IPBlock != nil {
			return inBlock(peer.IPBlock, remote)
		}
		return slices.ContainsFunc(k.Pods, func(p *corev1.Pod) bool {
			return k.has(p, remote) && k.peerSelects(namespace, peer, p)
		})
	})
}

// peerSelects: podSelector alone selects pods in the policy's own namespace; namespaceSelector alone selects all pods
// of the namespaces; both select pods in namespaces.
func (k *Kubernetes) peerSelects(namespace string, peer networkingv1.NetworkPolicyPeer, p *corev1.Pod) bool {
	if peer.NamespaceSelector == nil {
		return p.Namespace == namespace && selects(peer.PodSelector, p.Labels)
	}
	inNamespace := slices.ContainsFunc(k.Namespaces, func(n *corev1.Namespace) bool {
		return n.Name == p.Namespace && selects(peer.NamespaceSelector, n.Labels)
	})
	return inNamespace && (peer.PodSelector == nil || selects(peer.PodSelector, p.Labels))
}

// inBlock: in the CIDR and in none of the exceptions. A block that is not an address range selects nothing.
func inBlock(b *networkingv1.IPBlock, a netip.Addr) bool {
	cidr, err := netip.ParsePrefix(b.CIDR)
	if err != nil || !cidr.Contains(a) {
		return false
	}
	for _, e := range b.Except {
		except, err := netip.ParsePrefix(e)
		if err != nil || except.Contains(a) {
			return false
		}
	}
	return true
}

// portsMatch: ports of a rule are always those of the traffic's destination.
func (k *Kubernetes) portsMatch(ports []networkingv1.NetworkPolicyPort, pkt model.Packet) bool {
	if len(ports) == 0 {
		return true
	}
	return slices.ContainsFunc(ports, func(port networkingv1.NetworkPolicyPort) bool {
		protocol := corev1.ProtocolTCP
		if port.Protocol != nil {
			protocol = *port.Protocol
		}
		switch {
		case protocolNumber(protocol) != pkt.Protocol:
			return false
		case port.Port == nil:
			return true
		case port.Port.StrVal != "":
			return k.declares(port.Port.StrVal, protocol, pkt.Dst, pkt.DstPort)
		case port.EndPort != nil:
			return port.Port.IntVal <= int32(pkt.DstPort) && int32(pkt.DstPort) <= *port.EndPort
		}
		return port.Port.IntVal == int32(pkt.DstPort)
	})
}

// declares reports whether a pod has the address and a container port of that name, protocol and number.
func (k *Kubernetes) declares(name string, protocol corev1.Protocol, dst netip.Addr, number uint16) bool {
	if k.others != nil && k.others(name, protocol, dst, number) {
		return true
	}
	return slices.ContainsFunc(k.Pods, func(p *corev1.Pod) bool {
		if !k.has(p, dst) {
			return false
		}
		for _, c := range slices.Concat(p.Spec.Containers, p.Spec.InitContainers) {
			for _, cp := range c.Ports {
				declared := cp.Protocol
				if declared == "" {
					declared = corev1.ProtocolTCP
				}
				if cp.Name == name && declared == protocol && cp.ContainerPort == int32(number) {
					return true
				}
			}
		}
		return false
	})
}

func protocolNumber(p corev1.Protocol) uint8 {
	switch p {
	case corev1.ProtocolTCP:
		return model.ProtoTCP
	case corev1.ProtocolUDP:
		return model.ProtoUDP
	case corev1.ProtocolSCTP:
		return model.ProtoSCTP
	}
	return 0
}

// selects: an empty label selector matches everything, a nil one nothing. A value that no label can have is compared like any other.
func selects(ls *metav1.LabelSelector, set map[string]string) bool {
	if ls == nil {
		return false
	}
	for key, want := range ls.MatchLabels {
		if value, has := set[key]; !has || value != want {
			return false
		}
	}
	for _, e := range ls.MatchExpressions {
		value, has := set[e.Key]
		among := has && slices.Contains(e.Values, value)
		holds := map[metav1.LabelSelectorOperator]bool{
			metav1.LabelSelectorOpIn: among, metav1.LabelSelectorOpNotIn: !among,
			metav1.LabelSelectorOpExists: has, metav1.LabelSelectorOpDoesNotExist: !has,
		}
		if !holds[e.Operator] { // one that is not known holds of nothing
			return false
		}
	}
	return true
}
