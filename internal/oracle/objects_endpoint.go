package oracle

import (
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/margay-project/margay/pkg/model"
)

// WorkloadObject is a WorkloadEndpoint as it is written.
type WorkloadObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Node               string         `json:"node"`
		InterfaceName      string         `json:"interfaceName"`
		IPNetworks         []string       `json:"ipNetworks"`
		Profiles           []string       `json:"profiles,omitempty"`
		Orchestrator       string         `json:"orchestrator,omitempty"`
		ServiceAccountName string         `json:"serviceAccountName,omitempty"`
		Ports              []WorkloadPort `json:"ports,omitempty"`
		// The others name what the interface belongs to; no verdict depends on them.
		Endpoint    string `json:"endpoint,omitempty"`
		ContainerID string `json:"containerID,omitempty"`
		Pod         string `json:"pod,omitempty"`
		MAC         string `json:"mac,omitempty"`
	} `json:"spec"`
}

// WorkloadPort is a port of a WorkloadEndpoint that has a name.
type WorkloadPort struct {
	Name     string             `json:"name"`
	Protocol intstr.IntOrString `json:"protocol"`
	Port     int32              `json:"port"`
}

// ProfileObject is a Profile as it is written.
type ProfileObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		LabelsToApply map[string]string `json:"labelsToApply,omitempty"`
		Ingress       []RuleObject      `json:"ingress,omitempty"`
		Egress        []RuleObject      `json:"egress,omitempty"`
	} `json:"spec"`
}

// thing is what has an address and labels: a pod, a workload endpoint or a network set.
type thing struct {
	labels          map[string]string // all of them
	namespace       string            // empty: it has none
	namespaceLabels map[string]string
	account         string // name of its service account; empty: it has none
	accountLabels   map[string]string
	ports           []port
	endpoint        bool // it is no network set
}

// port is a port that an endpoint gives a name.
type port struct {
	name     string
	protocol int
	number   int32
}

// judged is an endpoint that policies judge.
type judged struct {
	thing
	pod      *corev1.Pod // nil: it is a workload endpoint
	node     string
	owns     func(netip.Addr) bool
	profiles []string
}

// endpointOf returns the pod or workload endpoint if it is on the network now, or nil.
func (o *Objects) endpointOf(id model.EndpointID) *judged {
	if p := o.pod(id); p != nil {
		return &judged{thing: o.podThing(p), pod: p, node: p.Spec.NodeName, owns: func(a netip.Addr) bool { return o.has(p, a) },
			profiles: profilesOf(p)}
	}
	for _, w := range o.Workloads {
		if w.Namespace == id.Namespace && w.Name == id.Name {
			return &judged{thing: o.workloadThing(w), node: w.Spec.Node, owns: w.owns, profiles: w.Spec.Profiles}
		}
	}
	return nil
}

// thingsAt are those that have the address.
func (o *Objects) thingsAt(addr netip.Addr) (all []thing) {
	for _, p := range o.Pods {
		if o.has(p, addr) {
			all = append(all, o.podThing(p))
		}
	}
	for _, w := range o.Workloads {
		if w.owns(addr) {
			all = append(all, o.workloadThing(w))
		}
	}
	for _, s := range o.Sets {
		if slices.ContainsFunc(s.Spec.Nets, func(n string) bool { return prefixOf(n).Contains(addr) }) {
			all = append(all, o.setThing(s))
		}
	}
	return all
}

func (o *Objects) podThing(p *corev1.Pod) thing {
	t := o.endpointThing(p.Namespace, p.Labels, "k8s", accountName(p), profilesOf(p))
	for _, c := range slices.Concat(p.Spec.Containers, p.Spec.InitContainers) {
		for _, declared := range c.Ports {
			protocol := declared.Protocol
			if protocol == "" {
				protocol = corev1.ProtocolTCP
			}
			t.ports = append(t.ports, port{declared.Name, int(protocolNumber(protocol)), declared.ContainerPort})
		}
	}
	return t
}

// profilesOf: a pod has those of its namespace and its service account.
func profilesOf(p *corev1.Pod) []string {
	return []string{"kns." + p.Namespace, "ksa." + p.Namespace + "." + accountName(p)}
}

func (o *Objects) setThing(s *SetObject) thing {
	t := thing{labels: map[string]string{}, namespace: s.Namespace}
	maps.Copy(t.labels, s.Labels)
	var kept struct{ Labels map[string]string } // the metadata that Calico keeps in an annotation; not JSON: the object is not valid
	if s.APIVersion == "crd.projectcalico.org/v1" && json.Unmarshal([]byte(s.Annotations["projectcalico.org/metadata"]), &kept) == nil {
		maps.Copy(t.labels, kept.Labels)
	}
	if s.Namespace != "" {
		t.namespaceLabels = o.namespaceLabels(s.Namespace)
		t.labels["projectcalico.org/namespace"] = s.Namespace
		inherit(t.labels, "pcns.", t.namespaceLabels)
	}
	return t
}

func (o *Objects) workloadThing(w *WorkloadObject) thing {
	t := o.endpointThing(w.Namespace, w.Labels, w.Spec.Orchestrator, w.Spec.ServiceAccountName, w.Spec.Profiles)
	for _, p := range w.Spec.Ports {
		t.ports = append(t.ports, port{p.Name, protocolOf(p.Protocol), p.Port})
	}
	return t
}

// endpointThing: an endpoint inherits from its profiles, of two from the first; its own labels win.
func (o *Objects) endpointThing(namespace string, own map[string]string, orchestrator, account string, profiles []string) thing {
	t := thing{labels: map[string]string{}, namespace: namespace, namespaceLabels: map[string]string{},
		account: account, accountLabels: map[string]string{}, endpoint: true}
	for k, v := range own {
		if !strings.HasPrefix(k, "pcns.") && !strings.HasPrefix(k, "pcsa.") {
			t.labels[k] = v
		}
	}
	t.labels["projectcalico.org/namespace"] = namespace
	if orchestrator != "" {
		t.labels["projectcalico.org/orchestrator"] = orchestrator
	}
	if account != "" {
		t.labels["projectcalico.org/serviceaccount"] = account
	}
	for _, name := range profiles {
		for k, v := range o.labelsOfProfile(name) {
			if _, there := t.labels[k]; !there {
				t.labels[k] = v
			}
		}
	}
	for k, v := range t.labels {
		if key, ok := strings.CutPrefix(k, "pcns."); ok {
			t.namespaceLabels[key] = v
		}
		if key, ok := strings.CutPrefix(k, "pcsa."); ok {
			t.accountLabels[key] = v
		}
	}
	return t
}

// workloadDeclares reports whether a workload endpoint has the address and declares the port.
func (o *Objects) workloadDeclares(name string, protocol corev1.Protocol, dst netip.Addr, number uint16) bool {
	return slices.ContainsFunc(o.Workloads, func(w *WorkloadObject) bool {
		return w.owns(dst) && slices.ContainsFunc(w.Spec.Ports, func(p WorkloadPort) bool {
			return p.Name == name && protocolOf(p.Protocol) == int(protocolNumber(protocol)) && p.Port == int32(number)
		})
	})
}

func (w *WorkloadObject) owns(addr netip.Addr) bool {
	return slices.ContainsFunc(w.Spec.IPNetworks, func(n string) bool { return prefixOf(n).Addr() == addr })
}

// labelsOfProfile: kns.NAMESPACE and ksa.NAMESPACE.ACCOUNT stand for a namespace and a service account, unless there are
// Profiles of these names.
func (o *Objects) labelsOfProfile(name string) map[string]string {
	if p := o.profile(name); p != nil {
		return p.Spec.LabelsToApply
	}
	labels := map[string]string{}
	if namespace, ok := strings.CutPrefix(name, "kns."); ok {
		inherit(labels, "pcns.", o.namespaceLabels(namespace))
	}
	if account, ok := strings.CutPrefix(name, "ksa."); ok {
		namespace, account, _ := strings.Cut(account, ".")
		inherit(labels, "pcsa.", o.accountLabels(namespace, account))
	}
	return labels
}

func (o *Objects) profile(name string) *ProfileObject {
	for _, p := range o.Profiles {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// profilesAllow: what no tier decides, the endpoint's profiles do, in order; Pass leads to the next one (D-5). That of a
// namespace that is known allows everything.
func (o *Objects) profilesAllow(e *judged, dir model.Direction, pkt model.Packet) bool {
	for _, name := range e.profiles {
		p := o.profile(name)
		if p == nil {
			namespace, ok := strings.CutPrefix(name, "kns.")
			if ok && slices.ContainsFunc(o.Namespaces, func(n *corev1.Namespace) bool { return n.Name == namespace }) {
				return true
			}
			continue
		}
		rules := p.Spec.Ingress
		if dir == model.Egress {
			rules = p.Spec.Egress
		}
		for i := range rules {
			if rules[i].Action == "Log" || !o.ruleMatches("", &rules[i], pkt) {
				continue
			}
			if rules[i].Action != "Pass" {
				return rules[i].Action == "Allow"
			}
			break
		}
	}
	return false
}
