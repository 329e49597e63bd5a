package validate_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/margay-project/margay/internal/oracle"
	"github.com/margay-project/margay/pkg/model"
	. "github.com/margay-project/margay/pkg/validate"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"
)

// The generators draw from few names, labels, ports and addresses, so that what they draw meets.
var (
	someNamespace = rapid.SampledFrom([]string{"a", "b"})
	someKey       = rapid.SampledFrom([]string{"x", "y.io/z"})
	someValue     = rapid.SampledFrom([]string{"", "1", "2"})
	someLabels    = rapid.MapOfN(someKey, someValue, 0, 2)
	someProtocol  = rapid.SampledFrom([]corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP})
	somePort      = rapid.SampledFrom([]int32{1, 2, 3, 80, 65535})
	somePortName  = rapid.SampledFrom([]string{"http", "dns"})
	someAddr      = rapid.SampledFrom([]string{"10.0.0.1", "10.0.0.2", "10.0.1.1", "11.0.0.1", "fd00::1", "fd00::2", "fe00::1"})

	someRequirement = rapid.Custom(func(t *rapid.T) metav1.LabelSelectorRequirement {
		r := metav1.LabelSelectorRequirement{Key: someKey.Draw(t, "key"), Operator: rapid.SampledFrom(
			[]metav1.LabelSelectorOperator{"In", "NotIn", "Exists", "DoesNotExist"}).Draw(t, "operator")}
		if r.Operator == "In" || r.Operator == "NotIn" {
			r.Values = rapid.SliceOfN(someValue, 1, 3).Draw(t, "values")
		}
		return r
	})
	someSelector = rapid.Custom(func(t *rapid.T) *metav1.LabelSelector {
		return &metav1.LabelSelector{
			MatchLabels:      rapid.MapOfN(someKey, someValue, 0, 1).Draw(t, "matchLabels"),
			MatchExpressions: rapid.SliceOfN(someRequirement, 0, 2).Draw(t, "matchExpressions"),
		}
	})
	someBlock = rapid.SampledFrom([]*networkingv1.IPBlock{
		{CIDR: "0.0.0.0/0"}, {CIDR: "::/0"}, {CIDR: "10.0.0.0/8", Except: []string{"10.0.0.0/24"}},
		{CIDR: "10.0.0.1/32"}, {CIDR: "fd00::/16", Except: []string{"fd00::1/128"}}, {CIDR: "10.0.0.0/33"},
		{CIDR: "0.0.0.0/0", Except: []string{"bad"}}, {CIDR: "10.0.0.7/24"},
	})
	somePeer = rapid.Custom(func(t *rapid.T) networkingv1.NetworkPolicyPeer {
		switch rapid.IntRange(0, 3).Draw(t, "form") {
		case 0:
			return networkingv1.NetworkPolicyPeer{IPBlock: someBlock.Draw(t, "ipBlock")}
		case 1:
			return networkingv1.NetworkPolicyPeer{PodSelector: someSelector.Draw(t, "podSelector")}
		case 2:
			return networkingv1.NetworkPolicyPeer{NamespaceSelector: someSelector.Draw(t, "namespaceSelector")}
		}
		return networkingv1.NetworkPolicyPeer{PodSelector: someSelector.Draw(t, "podSelector"),
			NamespaceSelector: someSelector.Draw(t, "namespaceSelector")}
	})
	someRulePort = rapid.Custom(func(t *rapid.T) networkingv1.NetworkPolicyPort {
		var p networkingv1.NetworkPolicyPort
		if rapid.Bool().Draw(t, "has protocol") {
			proto := someProtocol.Draw(t, "protocol")
			p.Protocol = &proto
		}
		switch rapid.IntRange(0, 3).Draw(t, "form") {
		case 0:
			name := intstr.FromString(somePortName.Draw(t, "name"))
			p.Port = &name
		case 1:
			num := intstr.FromInt32(somePort.Draw(t, "port"))
			p.Port = &num
		case 2:
			num := intstr.FromInt32(somePort.Draw(t, "port"))
			end := max(num.IntVal, somePort.Draw(t, "endPort"))
			p.Port, p.EndPort = &num, &end
		}
		return p
	})
	somePolicy = rapid.Custom(func(t *rapid.T) *networkingv1.NetworkPolicy {
		np := &networkingv1.NetworkPolicy{}
		np.Namespace = someNamespace.Draw(t, "namespace")
		np.Spec.PodSelector = *someSelector.Draw(t, "podSelector")
		for range rapid.IntRange(0, 2).Draw(t, "ingress rules") {
			np.Spec.Ingress = append(np.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{
				From: rapid.SliceOfN(somePeer, 0, 2).Draw(t, "from"), Ports: rapid.SliceOfN(someRulePort, 0, 3).Draw(t, "ports")})
		}
		for range rapid.IntRange(0, 2).Draw(t, "egress rules") {
			np.Spec.Egress = append(np.Spec.Egress, networkingv1.NetworkPolicyEgressRule{
				To: rapid.SliceOfN(somePeer, 0, 2).Draw(t, "to"), Ports: rapid.SliceOfN(someRulePort, 0, 3).Draw(t, "ports")})
		}
		np.Spec.PolicyTypes = rapid.SampledFrom([][]networkingv1.PolicyType{nil, {}, {"Ingress"}, {"Egress"},
			{"Ingress", "Egress"}}).Draw(t, "policyTypes")
		return np
	})
	someContainerPort = rapid.Custom(func(t *rapid.T) corev1.ContainerPort {
		return corev1.ContainerPort{Name: somePortName.Draw(t, "name"), ContainerPort: somePort.Draw(t, "port"),
			Protocol: rapid.SampledFrom([]corev1.Protocol{"", "TCP", "UDP", "SCTP"}).Draw(t, "protocol")}
	})
)

// someCluster draws a cluster whose pods have addresses of their own.
func someCluster(t *rapid.T) *oracle.Kubernetes {
	k := &oracle.Kubernetes{}
	for _, name := range []string{"a", "b"} {
		ns := &corev1.Namespace{}
		ns.Name, ns.Labels = name, someLabels.Draw(t, "namespace labels")
		k.Namespaces = append(k.Namespaces, ns)
	}
	ips := rapid.SliceOfNDistinct(someAddr, 1, 4, rapid.ID).Draw(t, "pod addresses")
	for i, ip := range ips {
		p := &corev1.Pod{}
		p.Namespace, p.Name, p.Labels = someNamespace.Draw(t, "pod namespace"), string(rune('p'+i)), someLabels.Draw(t, "pod labels")
		p.Spec.NodeName = "node"
		p.Spec.HostNetwork = rapid.IntRange(0, 9).Draw(t, "hostNetwork") == 0
		p.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{"Running", "Running", "Pending", "Failed", "Succeeded"}).Draw(t, "phase")
		p.Status.PodIPs = []corev1.PodIP{{IP: ip}}
		p.Spec.Containers = []corev1.Container{{Ports: rapid.SliceOfN(someContainerPort, 0, 2).Draw(t, "ports")}}
		p.Spec.InitContainers = []corev1.Container{{Ports: rapid.SliceOfN(someContainerPort, 0, 1).Draw(t, "init ports")}}
		k.Pods = append(k.Pods, p)
	}
	k.Policies = rapid.SliceOfN(somePolicy, 0, 3).Draw(t, "policies")
	for i, np := range k.Policies {
		np.Name = string(rune('a' + i))
	}
	return k
}

// converted is the cluster as the model sees it.
func converted(t *rapid.T, k *oracle.Kubernetes) *oracle.Cluster {
	var us []model.Update
	add := func(u model.Update, problems []Problem, ok bool) {
		if !ok {
			t.Fatalf("rejected: %v", problems)
		}
		us = append(us, u)
	}
	for _, n := range k.Namespaces {
		u, p, ok := Namespace(n)
		add(u, p, ok)
	}
	for _, pod := range k.Pods {
		u, p, ok := Pods{}.Pod(pod)
		add(u, p, ok)
	}
	for _, np := range k.Policies {
		u, p, ok := NetworkPolicy(np)
		add(u, p, ok)
	}
	return oracle.New(us)
}

// The evaluator of typed Kubernetes objects knows nothing of the model.
func TestModelAllowsWhatNetworkPolicyDocumentationAllows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := someCluster(t)
		c := converted(t, k)
		for range 20 {
			pkt := somePacket(t)
			for _, pod := range k.Pods {
				id := model.WorkloadID(pod.Namespace, pod.Name)
				for _, dir := range []model.Direction{model.Ingress, model.Egress} {
					own := pkt.Dst
					if dir == model.Egress {
						own = pkt.Src
					}
					if own.String() != pod.Status.PodIPs[0].IP {
						continue
					}
					want := k.Allows(id, dir, pkt)
					if got := c.Judge(id, dir, pkt); got.Allow != want {
						t.Fatalf("%v %v %+v: model allows %v by %v, Kubernetes %v", id, dir, pkt, got.Allow, got.By, want)
					}
				}
			}
		}
	})
}

func somePacket(t *rapid.T) model.Packet {
	pkt := model.Packet{Src: netip.MustParseAddr(someAddr.Draw(t, "src"))}
	pkt.Dst = netip.MustParseAddr(someAddr.Filter(func(s string) bool {
		return netip.MustParseAddr(s).Is4() == pkt.Src.Is4()
	}).Draw(t, "dst"))
	pkt.Protocol = rapid.SampledFrom([]uint8{model.ProtoTCP, model.ProtoUDP, model.ProtoSCTP, 47}).Draw(t, "protocol")
	if model.HasPorts(pkt.Protocol) {
		pkt.SrcPort = uint16(somePort.Draw(t, "source port"))
		pkt.DstPort = uint16(rapid.SampledFrom([]int{1, 2, 3, 4, 80, 65535}).Draw(t, "destination port"))
	}
	return pkt
}

func TestNetworkPolicyIsDeterministicAndLeavesItsArgumentAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		np := somePolicy.Draw(t, "policy")
		before := np.DeepCopy()
		first, problems, ok := NetworkPolicy(np)
		if diff := cmp.Diff(before, np); diff != "" {
			t.Fatalf("the argument has changed:\n%s", diff)
		}
		again, problemsAgain, okAgain := NetworkPolicy(np)
		if ok != okAgain || !cmp.Equal(first, again, compare) || !slices.Equal(problems, problemsAgain) {
			t.Fatalf("two results:\n%s", cmp.Diff(first, again, compare))
		}
	})
}
