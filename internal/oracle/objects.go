package oracle

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/margay-project/margay/pkg/model"
)

// Objects is a cluster with Calico's kinds, as their objects are written. It is judged by what docs/semantics.md says of
// these kinds, without the conversion of package validate, without package selector and without the model. Objects that
// are not valid must be left out.
type Objects struct {
	*Kubernetes
	ServiceAccounts []*corev1.ServiceAccount
	Slices          []*discoveryv1.EndpointSlice
	Tiers           []*TierObject
	Calico          []*PolicyObject
	Sets            []*SetObject // NetworkSets, which have a namespace, and GlobalNetworkSets
	Profiles        []*ProfileObject
	Workloads       []*WorkloadObject
}

// TierObject is a Tier as it is written.
type TierObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Order         *float64 `json:"order,omitempty"`
		DefaultAction string   `json:"defaultAction,omitempty"`
	} `json:"spec"`
}

// SetObject is a NetworkSet or GlobalNetworkSet as it is written.
type SetObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Nets []string `json:"nets,omitempty"`
	} `json:"spec"`
}

// PolicyObject is a NetworkPolicy or GlobalNetworkPolicy of Calico as it is written.
type PolicyObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              PolicySpec `json:"spec"`

	unknown []string
}

// MarkUnknown notes that the object has a field that is not known, at the path.
func (p *PolicyObject) MarkUnknown(path string) { p.unknown = append(p.unknown, path) }

// PolicySpec has the fields that say something to a pod.
type PolicySpec struct {
	Tier                   string       `json:"tier,omitempty"`
	Order                  *float64     `json:"order,omitempty"`
	Selector               string       `json:"selector,omitempty"`
	NamespaceSelector      string       `json:"namespaceSelector,omitempty"`
	ServiceAccountSelector string       `json:"serviceAccountSelector,omitempty"`
	Types                  []string     `json:"types,omitempty"`
	Ingress                []RuleObject `json:"ingress,omitempty"`
	Egress                 []RuleObject `json:"egress,omitempty"`
	DoNotTrack             bool         `json:"doNotTrack,omitempty"`
	PreDNAT                bool         `json:"preDNAT,omitempty"`
	ApplyOnForward         bool         `json:"applyOnForward,omitempty"`
}

// RuleObject is a rule as it is written.
type RuleObject struct {
	Action      string              `json:"action"`
	IPVersion   int                 `json:"ipVersion,omitempty"`
	Protocol    *intstr.IntOrString `json:"protocol,omitempty"`
	NotProtocol *intstr.IntOrString `json:"notProtocol,omitempty"`
	ICMP        *ICMPObject         `json:"icmp,omitempty"`
	NotICMP     *ICMPObject         `json:"notICMP,omitempty"`
	Source      SideObject          `json:"source,omitzero"`
	Destination SideObject          `json:"destination,omitzero"`
	HTTP        *HTTPObject         `json:"http,omitempty"`
	Metadata    *struct {
		Annotations map[string]string `json:"annotations,omitempty"`
	} `json:"metadata,omitempty"`
}

// ICMPObject is a type, and a code if there is one.
type ICMPObject struct {
	Type uint8  `json:"type"`
	Code *uint8 `json:"code,omitempty"`
}

// HTTPObject is a match that no packet meets here (D-3).
type HTTPObject struct {
	Methods []string            `json:"methods,omitempty"`
	Paths   []map[string]string `json:"paths,omitempty"`
}

// SideObject is the source or destination of a rule as it is written.
type SideObject struct {
	Nets              []string             `json:"nets,omitempty"`
	NotNets           []string             `json:"notNets,omitempty"`
	Selector          string               `json:"selector,omitempty"`
	NotSelector       string               `json:"notSelector,omitempty"`
	NamespaceSelector string               `json:"namespaceSelector,omitempty"`
	ServiceAccounts   *AccountsObject      `json:"serviceAccounts,omitempty"`
	Services          *ServiceObject       `json:"services,omitempty"`
	Ports             []intstr.IntOrString `json:"ports,omitempty"`
	NotPorts          []intstr.IntOrString `json:"notPorts,omitempty"`
}

// AccountsObject means service accounts.
type AccountsObject struct {
	Names    []string `json:"names,omitempty"`
	Selector string   `json:"selector,omitempty"`
}

// ServiceObject names a Service.
type ServiceObject struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
}

// ranked is a policy of any kind in its place among those of its tier.
type ranked struct {
	tier  string
	order float64
	text  string // name/namespace/kind
	judge func(pkt model.Packet) (decided string, ok bool)
}

// Allows reports whether the policies that select the endpoint let the packet pass in the direction (semantics §5). An
// endpoint that is not known, or not on the pod network, has no say and the answer is false.
func (o *Objects) Allows(id model.EndpointID, dir model.Direction, pkt model.Packet) bool {
	o.others = o.workloadDeclares
	if e := o.endpointOf(id); e != nil && dir == model.Ingress && o.isOfNode(e.node, pkt.Src) {
		return true
	}
	return o.AllowsForwarded(id, dir, pkt)
}

// AllowsForwarded is Allows for a packet that no node has made, though it may have the address of one.
func (o *Objects) AllowsForwarded(id model.EndpointID, dir model.Direction, pkt model.Packet) bool {
	o.others = o.workloadDeclares
	e := o.endpointOf(id)
	switch {
	case e == nil:
		return false
	case e.owns(pkt.Src) && e.owns(pkt.Dst):
		return true
	}
	isolating := o.isolating(e, dir)
	for _, tier := range o.tiersOf(isolating) {
		decided := ""
		for _, p := range isolating {
			if p.tier != tier.Name || decided != "" {
				continue
			}
			if action, ok := p.judge(pkt); ok {
				decided = action
			}
		}
		if decided == "" {
			decided = tier.Spec.DefaultAction
		}
		if decided != "Pass" {
			return decided == "Allow"
		}
	}
	return o.profilesAllow(e, dir, pkt)
}

// tiersOf are the tiers in which the policies are, in order. A default action that is not Pass is Deny.
func (o *Objects) tiersOf(policies []ranked) []TierObject {
	known := map[string]TierObject{}
	add := func(name string, order float64, action string) {
		t := TierObject{}
		t.Name, t.Spec.Order, t.Spec.DefaultAction = name, &order, action
		known[name] = t
	}
	for _, t := range o.Tiers {
		order, action := math.MaxFloat64, "Deny"
		if t.Spec.Order != nil {
			order = *t.Spec.Order
		}
		if t.Spec.DefaultAction == "Pass" {
			action = "Pass"
		}
		add(t.Name, order, action)
	}
	add("kube-admin", 1e3, "Pass")
	add("default", 1e6, "Deny")
	add("kube-baseline", 1e7, "Pass")
	var tiers []TierObject
	for _, p := range policies {
		t, ok := known[p.tier]
		if !ok {
			add(p.tier, math.Inf(1), "Deny") // after those that are known, also after those without an order
			t = known[p.tier]
		}
		if !slices.ContainsFunc(tiers, func(o TierObject) bool { return o.Name == p.tier }) {
			tiers = append(tiers, t)
		}
	}
	slices.SortFunc(tiers, func(a, b TierObject) int {
		return cmp.Or(cmp.Compare(*a.Spec.Order, *b.Spec.Order), cmp.Compare(a.Name, b.Name))
	})
	return tiers
}

// isolating are the policies that select the endpoint and are about the direction, those of one tier in their order. Those of
// Kubernetes select pods only.
func (o *Objects) isolating(e *judged, dir model.Direction) []ranked {
	var all []ranked
	if e.pod != nil {
		all = o.isolatingPod(e.pod, dir)
	}
	for _, p := range o.Calico {
		if strings.HasPrefix(p.Kind, "Staged") || !o.selectsEndpoint(p, e) || !slices.Contains(p.types(), dir) {
			continue
		}
		r := ranked{p.Spec.Tier, math.Inf(1), p.Name + "/" + p.Namespace + "/" + p.Kind, o.calicoJudge(p, dir)}
		if r.tier == "" {
			r.tier = "default"
		}
		if p.Spec.Order != nil {
			r.order = *p.Spec.Order
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b ranked) int { return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.text, b.text)) })
	return all
}

// isolatingPod are the policies of Kubernetes that select the pod.
func (o *Objects) isolatingPod(pod *corev1.Pod, dir model.Direction) (all []ranked) {
	for _, np := range o.Policies {
		if np.Namespace == pod.Namespace && selects(&np.Spec.PodSelector, pod.Labels) && policyHasType(np, dir) {
			all = append(all, ranked{"default", 1000, np.Name + "/" + np.Namespace + "/KubernetesNetworkPolicy", o.kubernetesJudge(np, dir)})
		}
	}
	for _, cnp := range o.ClusterPolicies {
		if !o.isOneOf(pod, cnp.Spec.Subject.Namespaces, cnp.Spec.Subject.Pods) || len(clusterRules(cnp, dir)) == 0 {
			continue
		}
		tier := map[v1alpha2.Tier]string{v1alpha2.AdminTier: "kube-admin", v1alpha2.BaselineTier: "kube-baseline"}[cnp.Spec.Tier]
		all = append(all, ranked{tier, float64(cnp.Spec.Priority), cnp.Name + "//KubernetesClusterNetworkPolicy", o.clusterJudge(cnp, dir)})
	}
	return all
}

func (o *Objects) kubernetesJudge(np *networkingv1.NetworkPolicy, dir model.Direction) func(model.Packet) (string, bool) {
	return func(pkt model.Packet) (string, bool) { return "Allow", o.policyAllows(np, dir, pkt) }
}

func (o *Objects) clusterJudge(cnp *v1alpha2.ClusterNetworkPolicy, dir model.Direction) func(model.Packet) (string, bool) {
	return func(pkt model.Packet) (string, bool) {
		action, ok := o.clusterDecides(cnp, dir, pkt)
		if action == v1alpha2.ClusterNetworkPolicyRuleActionAccept {
			return "Allow", ok
		}
		return string(action), ok
	}
}

func (o *Objects) calicoJudge(p *PolicyObject, dir model.Direction) func(model.Packet) (string, bool) {
	rules, list := p.Spec.Ingress, "spec.ingress["
	if dir == model.Egress {
		rules, list = p.Spec.Egress, "spec.egress["
	}
	return func(pkt model.Packet) (string, bool) {
		if p.isClosed() {
			return "Deny", true
		}
		for i := range rules {
			action := inCase(rules[i].Action, "Allow", "Deny", "Pass", "Log")
			switch {
			case !slices.Contains([]string{"Allow", "Deny", "Pass", "Log"}, action):
				return "Deny", true
			case p.isUnknown(list, i), !isKnownProtocol(rules[i].Protocol), !isKnownProtocol(rules[i].NotProtocol):
				if action == "Deny" || action == "Pass" {
					return "Deny", true
				}
			case action != "Log" && o.ruleMatches(p.Namespace, &rules[i], pkt):
				return action, true
			}
		}
		return "", false
	}
}

// isKnownProtocol reports whether a protocol is absent, a number or one of the names that there are.
func isKnownProtocol(p *intstr.IntOrString) bool {
	if p == nil || p.Type == intstr.Int {
		return true
	}
	_, err := strconv.Atoi(p.StrVal)
	return err == nil || slices.Contains([]string{"tcp", "udp", "sctp", "udplite", "icmp", "icmpv6"}, strings.ToLower(p.StrVal))
}

// hasNewType reports whether the policy has a type that is not known, which may mean either direction.
func (p *PolicyObject) hasNewType() bool {
	return slices.ContainsFunc(p.Spec.Types, func(t string) bool {
		t = inCase(t, "Ingress", "Egress")
		return t != "Ingress" && t != "Egress"
	})
}

// inCase is the name that the text is but for the case of its letters, or the text.
func inCase(text string, names ...string) string {
	for _, name := range names {
		if strings.EqualFold(name, text) {
			return name
		}
	}
	return text
}

// isClosed reports whether a field or a type that is not known belongs to no rule.
func (p *PolicyObject) isClosed() bool {
	return p.hasNewType() || slices.ContainsFunc(p.unknown, func(path string) bool {
		return !strings.HasPrefix(path, "spec.ingress[") && !strings.HasPrefix(path, "spec.egress[") && !strings.HasPrefix(path, "metadata.")
	})
}

// isUnknown reports whether the rule has a field that is not known, not counting its metadata.
func (p *PolicyObject) isUnknown(list string, i int) bool {
	return slices.ContainsFunc(p.unknown, func(path string) bool {
		field, ofRule := strings.CutPrefix(path, list+strconv.Itoa(i)+"].")
		return ofRule && !strings.HasPrefix(field, "metadata.")
	})
}

// types are the directions that the policy is about. Policies for host endpoints are about none of a pod's.
func (p *PolicyObject) types() (dirs []model.Direction) {
	s := &p.Spec
	if s.DoNotTrack || s.PreDNAT {
		return nil
	}
	if len(s.Types) == 0 {
		if len(s.Ingress) > 0 || len(s.Egress) == 0 {
			dirs = append(dirs, model.Ingress)
		}
		if len(s.Egress) > 0 {
			dirs = append(dirs, model.Egress)
		}
		return dirs
	}
	if p.hasNewType() {
		return []model.Direction{model.Ingress, model.Egress}
	}
	for i, name := range []string{"Ingress", "Egress"} {
		if slices.ContainsFunc(s.Types, func(t string) bool { return strings.EqualFold(t, name) }) {
			dirs = append(dirs, []model.Direction{model.Ingress, model.Egress}[i])
		}
	}
	return dirs
}

func (o *Objects) selectsEndpoint(p *PolicyObject, e *judged) bool {
	if p.Namespace != "" && p.Namespace != e.namespace {
		return false
	}
	s := &p.Spec
	return holds(s.Selector, e.labels) && e.inNamespace(s.NamespaceSelector) && e.hasAccount(s.ServiceAccountSelector)
}

// prefixes of a text that is a prefix or an address.
func prefixOf(text string) netip.Prefix {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p
	}
	if a, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(a, a.BitLen())
	}
	return netip.Prefix{}
}
