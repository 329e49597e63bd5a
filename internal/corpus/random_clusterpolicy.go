package corpus

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

// drawClusterPolicy draws a ClusterNetworkPolicy as its CRD would accept it. Few priorities make ties.
func drawClusterPolicy(t *rapid.T, i int) *v1alpha2.ClusterNetworkPolicy {
	cnp := &v1alpha2.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("cnp%d", i)}}
	cnp.Spec.Tier = one(t, []v1alpha2.Tier{v1alpha2.AdminTier, v1alpha2.BaselineTier}, "tier")
	cnp.Spec.Priority = int32(rapid.IntRange(0, 3).Draw(t, "priority"))
	cnp.Spec.Subject.Namespaces, cnp.Spec.Subject.Pods = drawPods(t)
	for range upTo(t, 0, 3, "ingress") {
		r := v1alpha2.ClusterNetworkPolicyIngressRule{Action: drawClusterAction(t), Protocols: drawClusterProtocols(t, true)}
		for range upTo(t, 1, 3, "from") {
			var p v1alpha2.ClusterNetworkPolicyIngressPeer
			p.Namespaces, p.Pods = drawPods(t)
			r.From = append(r.From, p)
		}
		cnp.Spec.Ingress = append(cnp.Spec.Ingress, r)
	}
	for range upTo(t, 0, 3, "egress") {
		r := v1alpha2.ClusterNetworkPolicyEgressRule{Action: drawClusterAction(t)}
		named := true
		for range upTo(t, 1, 3, "to") {
			p := drawEgressPeer(t)
			named = named && (p.Namespaces != nil || p.Pods != nil)
			r.To = append(r.To, p)
		}
		r.Protocols = drawClusterProtocols(t, named)
		cnp.Spec.Egress = append(cnp.Spec.Egress, r)
	}
	return cnp
}

func drawClusterAction(t *rapid.T) v1alpha2.ClusterNetworkPolicyRuleAction {
	return one(t, []v1alpha2.ClusterNetworkPolicyRuleAction{
		v1alpha2.ClusterNetworkPolicyRuleActionAccept,
		v1alpha2.ClusterNetworkPolicyRuleActionDeny,
		v1alpha2.ClusterNetworkPolicyRuleActionPass,
	}, "action")
}

// drawPods draws what selects pods: one of the two.
func drawPods(t *rapid.T) (*metav1.LabelSelector, *v1alpha2.NamespacedPod) {
	s := drawLabelSelector(t)
	if chance(t, 4, "by name") {
		s = metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": one(t, namespaces, "namespace")}}
	}
	if chance(t, 2, "pods") {
		return nil, &v1alpha2.NamespacedPod{NamespaceSelector: s, PodSelector: drawLabelSelector(t)}
	}
	return &s, nil
}

// drawEgressPeer draws now and then a peer that no node can enforce, so that its rule has to fail closed.
func drawEgressPeer(t *rapid.T) v1alpha2.ClusterNetworkPolicyEgressPeer {
	var p v1alpha2.ClusterNetworkPolicyEgressPeer
	switch {
	case chance(t, 20, "domain names"):
		p.DomainNames = []v1alpha2.DomainName{"*.example.com"}
	case chance(t, 6, "nodes"):
		s := drawLabelSelector(t)
		p.Nodes = &s
	case chance(t, 3, "networks"):
		for _, net := range rapid.SliceOfNDistinct(rapid.SampledFrom(prefixes), 1, 3, rapid.ID).Draw(t, "networks") {
			p.Networks = append(p.Networks, v1alpha2.CIDR(net.String()))
		}
	default:
		p.Namespaces, p.Pods = drawPods(t)
	}
	return p
}

func drawClusterProtocols(t *rapid.T, named bool) []v1alpha2.ClusterNetworkPolicyProtocol {
	var protocols []v1alpha2.ClusterNetworkPolicyProtocol
	for range upTo(t, 0, 3, "protocols") {
		var p v1alpha2.ClusterNetworkPolicyProtocol
		if named && chance(t, 3, "named") {
			p.DestinationNamedPort = one(t, portNames, "name")
			protocols = append(protocols, p)
			continue
		}
		lo, hi := int32(max(1, one(t, numbers, "port"))), int32(one(t, numbers, "end"))
		port := &v1alpha2.Port{Number: lo}
		if hi > lo && chance(t, 2, "range") {
			port = &v1alpha2.Port{Range: &v1alpha2.PortRange{Start: lo, End: hi}}
		}
		switch rapid.IntRange(0, 2).Draw(t, "protocol") {
		case 0:
			p.TCP = &v1alpha2.ClusterNetworkPolicyProtocolTCP{DestinationPort: port}
		case 1:
			p.UDP = &v1alpha2.ClusterNetworkPolicyProtocolUDP{DestinationPort: port}
		default:
			p.SCTP = &v1alpha2.ClusterNetworkPolicyProtocolSCTP{DestinationPort: port}
		}
		protocols = append(protocols, p)
	}
	return protocols
}
