package corpus

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/margay-project/margay/internal/oracle"
	"github.com/margay-project/margay/pkg/model"
)

// DrawObjects draws a cluster with Calico's kinds beside those of Kubernetes, as the API would accept them.
func DrawObjects(t *rapid.T) *oracle.Objects {
	o := &oracle.Objects{Kubernetes: DrawKubernetes(t)}
	for _, p := range o.Pods {
		p.Spec.ServiceAccountName = one(t, []string{"", "", "sa"}, "service account")
	}
	for _, ns := range namespaces {
		for _, name := range []string{"default", "sa"} {
			if chance(t, 2, "service account") {
				o.ServiceAccounts = append(o.ServiceAccounts, &corev1.ServiceAccount{
					ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: drawKubernetesLabels(t)}})
			}
		}
	}
	for _, name := range []string{"t1", "t2"} {
		if !chance(t, 4, "no tier") {
			o.Tiers = append(o.Tiers, drawTierObject(t, name))
		}
	}
	for _, i := range upTo(t, 0, 3, "sets") {
		o.Sets = append(o.Sets, drawSetObject(t, i))
	}
	for _, i := range upTo(t, 0, 2, "slices") {
		o.Slices = append(o.Slices, drawSliceObject(t, i))
	}
	for _, i := range upTo(t, 1, 6, "Calico policies") {
		o.Calico = append(o.Calico, drawPolicyObject(t, i))
	}
	for _, i := range upTo(t, 0, 2, "profiles") {
		o.Profiles = append(o.Profiles, drawProfileObject(t, i))
	}
	for _, i := range upTo(t, 0, 2, "workload endpoints") {
		o.Workloads = append(o.Workloads, drawWorkloadObject(t, i))
	}
	return o
}

// ObjectDocuments are the cluster's objects as YAML manifests.
func ObjectDocuments(o *oracle.Objects) ([][]byte, error) {
	docs, err := Documents(o.Kubernetes)
	if err != nil {
		return nil, err
	}
	for _, a := range o.ServiceAccounts {
		docs, err = appendDocument(docs, err, "v1", "ServiceAccount", a)
	}
	for _, s := range o.Slices {
		docs, err = appendDocument(docs, err, "discovery.k8s.io/v1", "EndpointSlice", s)
	}
	for _, tier := range o.Tiers {
		docs, err = appendDocument(docs, err, "", "", tier)
	}
	for _, s := range o.Sets {
		docs, err = appendDocument(docs, err, "", "", s)
	}
	for _, p := range o.Calico {
		docs, err = appendDocument(docs, err, "", "", p)
	}
	for _, p := range o.Profiles {
		docs, err = appendDocument(docs, err, "", "", p)
	}
	for _, w := range o.Workloads {
		docs, err = appendDocument(docs, err, "", "", w)
	}
	return docs, err
}

// appendDocument adds an object as YAML. Objects that name their API themselves have no apiVersion here.
func appendDocument[T any](docs [][]byte, err error, apiVersion, kind string, object T) ([][]byte, error) {
	if err != nil {
		return nil, err
	}
	text, err := yaml.Marshal(object)
	if apiVersion != "" {
		text = append(fmt.Appendf(nil, "apiVersion: %s\nkind: %s\n", apiVersion, kind), text...)
	}
	return append(docs, text), err
}

func drawGroup(t *rapid.T, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: one(t, []string{"projectcalico.org/v3", "crd.projectcalico.org/v1"}, "group"), Kind: kind}
}

func drawTierObject(t *rapid.T, name string) *oracle.TierObject {
	tier := &oracle.TierObject{TypeMeta: drawGroup(t, "Tier"), ObjectMeta: metav1.ObjectMeta{Name: name}}
	tier.Spec.Order = drawOrder(t)
	tier.Spec.DefaultAction = one(t, []string{"", "Deny", "Pass", "Pass"}, "default action")
	return tier
}

func drawOrder(t *rapid.T) *float64 {
	if chance(t, 4, "no order") {
		return nil
	}
	order := one(t, []float64{-1, 0, 0.5, 1, 1000, 1000, 1e6, 2e7}, "order")
	return &order
}

func drawSetObject(t *rapid.T, i int) *oracle.SetObject {
	s := &oracle.SetObject{TypeMeta: drawGroup(t, "GlobalNetworkSet"), ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("set%d", i)}}
	if chance(t, 2, "namespaced") {
		s.Kind, s.Namespace = "NetworkSet", one(t, namespaces, "namespace")
	}
	s.Labels = drawKubernetesLabels(t)
	if chance(t, 2, "labels in the annotation") {
		kept, err := json.Marshal(metav1.ObjectMeta{Labels: drawKubernetesLabels(t)})
		if err != nil {
			t.Fatal(err)
		}
		s.Annotations = map[string]string{"projectcalico.org/metadata": string(kept)}
	}
	for _, p := range some(t, prefixes, 4, "nets") {
		s.Spec.Nets = append(s.Spec.Nets, p.String())
	}
	return s
}

func drawSliceObject(t *rapid.T, i int) *discoveryv1.EndpointSlice {
	service := one(t, services, "service")
	s := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, ObjectMeta: metav1.ObjectMeta{
		Namespace: service.Namespace, Name: fmt.Sprintf("slice%d", i), Labels: map[string]string{discoveryv1.LabelServiceName: service.Name}}}
	for _, n := range some(t, []byte{1, 2, 3, 4, 99}, 3, "backends") {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{netip.AddrFrom4([4]byte{10, 0, 0, n}).String()}})
	}
	for j := range upTo(t, 0, 2, "ports") {
		name, number := fmt.Sprintf("p%d", j), int32(max(1, one(t, numbers, "port")))
		protocol := one(t, []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP}, "protocol")
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &name, Port: &number, Protocol: &protocol})
	}
	return s
}

func drawPolicyObject(t *rapid.T, i int) *oracle.PolicyObject {
	p := &oracle.PolicyObject{TypeMeta: drawGroup(t, "GlobalNetworkPolicy"), ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p%d", i)}}
	s := &p.Spec
	if chance(t, 2, "namespaced") {
		p.Kind, p.Namespace = "NetworkPolicy", one(t, namespaces, "namespace")
	} else if chance(t, 3, "namespace selector") {
		s.NamespaceSelector = one(t, []string{"all()", drawSelectorText(t, 1)}, "namespace selector")
	}
	s.Tier = one(t, []string{"", "default", "t1", "t1", "t2", "kube-admin", "kube-baseline", "t3"}, "tier")
	s.Order = drawOrder(t)
	if !chance(t, 3, "no selector") {
		s.Selector = drawSelectorText(t, 2)
	}
	if chance(t, 5, "service account selector") {
		s.ServiceAccountSelector = drawSelectorText(t, 1)
	}
	for range upTo(t, 0, 3, "ingress") {
		s.Ingress = append(s.Ingress, drawRuleObject(t, model.Ingress, p.Namespace == ""))
	}
	for range upTo(t, 0, 3, "egress") {
		s.Egress = append(s.Egress, drawRuleObject(t, model.Egress, p.Namespace == ""))
	}
	if !chance(t, 3, "no types") {
		s.Types = one(t, [][]string{{"Ingress"}, {"Egress"}, {"Ingress", "Egress"}}, "types")
	}
	if chance(t, 8, "staged") {
		p.Kind = "Staged" + p.Kind
	}
	return p
}

var (
	protocolTexts = []intstr.IntOrString{
		intstr.FromString("TCP"), intstr.FromString("TCP"), intstr.FromString("UDP"), intstr.FromInt32(6), intstr.FromString("SCTP"),
		intstr.FromString("ICMP"), intstr.FromString("ICMPv6"), intstr.FromString("UDPLite"), intstr.FromInt32(47),
	}
	notProtocolTexts = []intstr.IntOrString{intstr.FromString("TCP"), intstr.FromInt32(17), intstr.FromString("UDP"), intstr.FromInt32(47)}
)

// drawRuleObject keeps to the schema: one IP family in a rule, ports with protocols that have them, ICMP types with ICMP.
func drawRuleObject(t *rapid.T, dir model.Direction, global bool) oracle.RuleObject {
	r := oracle.RuleObject{Action: one(t, []string{"Allow", "Allow", "Deny", "Deny", "Pass", "Log"}, "action")}
	version := one(t, []int{4, 4, 6}, "family")
	ports, names := false, true
	if chance(t, 2, "protocol") {
		p := one(t, protocolTexts, "protocol")
		r.Protocol = &p
		switch p.String() {
		case "TCP", "UDP", "SCTP", "6":
			ports = true
		case "ICMP":
			version, names = 4, false
		case "ICMPv6":
			version, names = 6, false
		default:
			names = false
		}
		if !ports && !names && (p.StrVal == "ICMP" || p.StrVal == "ICMPv6") {
			r.ICMP, r.NotICMP = drawICMPObject(t), drawICMPObject(t)
		}
	} else if chance(t, 4, "not protocol") {
		p := one(t, notProtocolTexts, "not protocol")
		r.NotProtocol = &p
	}
	if chance(t, 4, "version") {
		r.IPVersion = version
	}
	r.Source, r.Destination = drawSideObject(t, version, ports, names), drawSideObject(t, version, ports, names)
	if chance(t, 10, "service") {
		service := one(t, services, "service")
		side := oracle.SideObject{Services: &oracle.ServiceObject{Name: service.Name, Namespace: service.Namespace}}
		if !global && chance(t, 2, "own namespace") {
			side.Services.Namespace = ""
		}
		if dir == model.Ingress {
			r.Source = side
		} else {
			r.Destination = side
		}
	}
	return r
}

func drawICMPObject(t *rapid.T) *oracle.ICMPObject {
	m := drawICMP(t)
	if m == nil || m.Type == 255 {
		return nil
	}
	return &oracle.ICMPObject{Type: m.Type, Code: m.Code}
}

func drawSideObject(t *rapid.T, version int, ports, names bool) oracle.SideObject {
	s := oracle.SideObject{}
	ofFamily := slices.DeleteFunc(slices.Clone(prefixes), func(p netip.Prefix) bool { return p.Addr().Is4() != (version == 4) })
	nets := func(n int, label string) (texts []string) {
		for _, p := range some(t, ofFamily, n, label) {
			texts = append(texts, p.String())
		}
		slices.Sort(texts)
		return slices.Compact(texts)
	}
	if chance(t, 4, "nets") {
		s.Nets = nets(3, "nets")
	}
	if chance(t, 6, "not nets") {
		s.NotNets = nets(2, "not nets")
	}
	if chance(t, 3, "selector") {
		s.Selector = drawSelectorText(t, 1)
	}
	if chance(t, 6, "not selector") {
		s.NotSelector = drawSelectorText(t, 1)
	}
	if chance(t, 5, "namespace selector") {
		s.NamespaceSelector = one(t, []string{"all()", "global()", drawSelectorText(t, 1)}, "namespace selector")
	}
	if chance(t, 8, "service accounts") {
		s.ServiceAccounts = &oracle.AccountsObject{Names: one(t, [][]string{nil, {"default"}, {"sa"}, {"default", "sa"}}, "names")}
		if chance(t, 2, "account selector") {
			s.ServiceAccounts.Selector = one(t, []string{"a == 'x'", "has(b)", "a != 'y'"}, "account selector")
		}
	}
	s.Ports, s.NotPorts = drawPortObjects(t, 4, ports, names), drawPortObjects(t, 8, ports, names)
	return s
}

// drawPortObjects draws names, and numbers with protocols that have them; mostly none.
func drawPortObjects(t *rapid.T, n int, numbered, named bool) (ports []intstr.IntOrString) {
	if !named || !chance(t, n, "ports") {
		return nil
	}
	for range upTo(t, 1, 3, "entries") {
		if !numbered || chance(t, 3, "name") {
			ports = append(ports, intstr.FromString(one(t, portNames, "name")))
			continue
		}
		lo := max(1, one(t, numbers, "lo"))
		hi := max(lo, one(t, numbers, "hi"))
		ports = append(ports, one(t, []intstr.IntOrString{
			intstr.FromInt32(int32(lo)), intstr.FromString(fmt.Sprintf("%d:%d", lo, hi)),
		}, "port"))
	}
	return ports
}
