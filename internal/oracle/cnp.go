package oracle

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/margay-project/margay/pkg/model"
)

// verdict of one tier of ClusterNetworkPolicies: undecided goes on with what comes after the tier.
type tierVerdict int

const (
	undecided tierVerdict = iota
	accepted
	denied
)

// clusterTier walks the tier's policies: lower priorities first, and in each its rules as they are written. The first
// rule that matches decides; Pass leaves the tier. Of two policies of one priority the API leaves open which comes
// first; here it is the one whose name is lower.
func (k *Kubernetes) clusterTier(tier v1alpha2.Tier, pod *corev1.Pod, dir model.Direction, pkt model.Packet) tierVerdict {
	policies := slices.Clone(k.ClusterPolicies)
	slices.SortFunc(policies, func(a, b *v1alpha2.ClusterNetworkPolicy) int {
		return cmp.Or(cmp.Compare(a.Spec.Priority, b.Spec.Priority), cmp.Compare(a.Name, b.Name))
	})
	for _, cnp := range policies {
		subject := cnp.Spec.Subject
		if cnp.Spec.Tier != tier || !k.isOneOf(pod, subject.Namespaces, subject.Pods) {
			continue
		}
		switch action, _ := k.clusterDecides(cnp, dir, pkt); action {
		case v1alpha2.ClusterNetworkPolicyRuleActionAccept:
			return accepted
		case v1alpha2.ClusterNetworkPolicyRuleActionDeny:
			return denied
		case v1alpha2.ClusterNetworkPolicyRuleActionPass:
			return undecided
		}
	}
	return undecided
}

// clusterDecides is the action of the policy's first rule that matches; not ok: none does.
func (k *Kubernetes) clusterDecides(cnp *v1alpha2.ClusterNetworkPolicy, dir model.Direction, pkt model.Packet) (action v1alpha2.ClusterNetworkPolicyRuleAction, ok bool) {
	for _, r := range clusterRules(cnp, dir) {
		switch matches, understood := k.clusterRuleMatches(r, pkt); {
		case !understood && r.action != v1alpha2.ClusterNetworkPolicyRuleActionAccept:
			return v1alpha2.ClusterNetworkPolicyRuleActionDeny, true // the API wants a rule that is not understood to deny everything then
		case understood && matches:
			return r.action, true
		}
	}
	return "", false
}

// clusterRule is a rule of either direction, with the end of a packet that its peers are about.
type clusterRule struct {
	action    v1alpha2.ClusterNetworkPolicyRuleAction
	peers     []v1alpha2.ClusterNetworkPolicyEgressPeer // those of ingress have fewer fields
	remote    func(model.Packet) netip.Addr
	protocols []v1alpha2.ClusterNetworkPolicyProtocol
}

func clusterRules(cnp *v1alpha2.ClusterNetworkPolicy, dir model.Direction) []clusterRule {
	var rules []clusterRule
	if dir == model.Egress {
		for _, r := range cnp.Spec.Egress {
			rules = append(rules, clusterRule{r.Action, r.To, func(p model.Packet) netip.Addr { return p.Dst }, r.Protocols})
		}
		return rules
	}
	for _, r := range cnp.Spec.Ingress {
		var peers []v1alpha2.ClusterNetworkPolicyEgressPeer
		for _, p := range r.From {
			peers = append(peers, v1alpha2.ClusterNetworkPolicyEgressPeer{Namespaces: p.Namespaces, Pods: p.Pods})
		}
		rules = append(rules, clusterRule{r.Action, peers, func(p model.Packet) netip.Addr { return p.Src }, r.Protocols})
	}
	return rules
}

// clusterRuleMatches: some peer matches the remote end, and some protocol the packet; no protocols match every packet. Not
// understood: a peer or a protocol says nothing that is known here, or what cannot be.
func (k *Kubernetes) clusterRuleMatches(r clusterRule, pkt model.Packet) (matches, understood bool) {
	peerMatches, protocolMatches := false, len(r.protocols) == 0
	named := false
	for _, p := range r.protocols {
		m, ok := k.clusterProtocolMatches(p, pkt)
		if !ok {
			return false, false
		}
		protocolMatches = protocolMatches || m
		named = named || p.DestinationNamedPort != ""
	}
	for _, p := range r.peers {
		m, ok := k.clusterPeerMatches(p, r.remote(pkt))
		if !ok || named && p.Namespaces == nil && p.Pods == nil {
			return false, false
		}
		peerMatches = peerMatches || m
	}
	return peerMatches && protocolMatches, len(r.peers) > 0
}

func (k *Kubernetes) clusterPeerMatches(p v1alpha2.ClusterNetworkPolicyEgressPeer, remote netip.Addr) (matches, understood bool) {
	switch {
	case p.Namespaces != nil && !usable(p.Namespaces),
		p.Pods != nil && (!usable(&p.Pods.NamespaceSelector) || !usable(&p.Pods.PodSelector)):
		return false, false
	case p.Namespaces != nil || p.Pods != nil:
		return slices.ContainsFunc(k.Pods, func(o *corev1.Pod) bool {
			return k.has(o, remote) && k.isOneOf(o, p.Namespaces, p.Pods)
		}), true
	case p.Nodes != nil:
		return slices.ContainsFunc(k.Nodes, func(n *corev1.Node) bool {
			return selects(p.Nodes, n.Labels) && slices.ContainsFunc(n.Status.Addresses, func(a corev1.NodeAddress) bool {
				addr, err := netip.ParseAddr(a.Address)
				return err == nil && addr.Unmap() == remote
			})
		}), usable(p.Nodes)
	case len(p.Networks) > 0:
		for _, text := range p.Networks {
			cidr, err := netip.ParsePrefix(string(text))
			if err != nil || cidr.Addr().Is4In6() {
				return false, false
			}
			matches = matches || cidr.Contains(remote)
		}
		return matches, true
	}
	return false, false
}

// usable: a label selector that is no selector selects nothing that anybody could know.
func usable(ls *metav1.LabelSelector) bool {
	_, err := metav1.LabelSelectorAsSelector(ls)
	return err == nil
}

// isOneOf reports whether the pod is in one of the namespaces, or one of the pods of namespaces; one of the two is set.
func (k *Kubernetes) isOneOf(pod *corev1.Pod, namespaces *metav1.LabelSelector, pods *v1alpha2.NamespacedPod) bool {
	if pods != nil {
		namespaces = &pods.NamespaceSelector
		if !selects(&pods.PodSelector, pod.Labels) {
			return false
		}
	}
	return slices.ContainsFunc(k.Namespaces, func(n *corev1.Namespace) bool {
		return n.Name == pod.Namespace && selects(namespaces, n.Labels)
	})
}

// clusterProtocolMatches: a named port is one that the destination declares, whatever its protocol.
func (k *Kubernetes) clusterProtocolMatches(p v1alpha2.ClusterNetworkPolicyProtocol, pkt model.Packet) (matches, understood bool) {
	var protocol uint8
	var port *v1alpha2.Port
	switch {
	case p.DestinationNamedPort != "":
		return slices.ContainsFunc([]corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}, func(proto corev1.Protocol) bool {
			return protocolNumber(proto) == pkt.Protocol && k.declares(p.DestinationNamedPort, proto, pkt.Dst, pkt.DstPort)
		}), true
	case p.TCP != nil:
		protocol, port = model.ProtoTCP, p.TCP.DestinationPort
	case p.UDP != nil:
		protocol, port = model.ProtoUDP, p.UDP.DestinationPort
	case p.SCTP != nil:
		protocol, port = model.ProtoSCTP, p.SCTP.DestinationPort
	}
	if port == nil || port.Number == 0 && port.Range == nil {
		return false, false
	}
	number := int32(pkt.DstPort)
	if port.Range != nil {
		matches = port.Range.Start <= number && number <= port.Range.End
	} else {
		matches = number == port.Number
	}
	return matches && pkt.Protocol == protocol, true
}
