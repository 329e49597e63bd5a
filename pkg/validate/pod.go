package validate

import (
	"cmp"
	"crypto/sha1"
	"encoding/hex"
	"math"
	"net/netip"
	"strings"

	"github.com/margay-project/margay/pkg/model"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Annotations that CNI plugins write a pod's addresses to.
const (
	annotationPodIPs    = "cni.projectcalico.org/podIPs"
	annotationPodIP     = "cni.projectcalico.org/podIP"
	annotationAWSPodIPs = "vpc.amazonaws.com/pod-ips"
)

// Annotator is the CNI plugin whose annotations are read as addresses of pods that the kubelet has not reported yet.
// Whoever may write a Pod can write them, too, so they count only where this plugin is in use.
type Annotator string

// The annotators that are known.
const (
	NoAnnotator     Annotator = "none"
	CalicoAnnotator Annotator = "calico"
	AWSAnnotator    Annotator = "aws"
)

// keys are its annotations, in the order they are asked.
func (a Annotator) keys() []string {
	switch a {
	case CalicoAnnotator:
		return []string{annotationPodIPs, annotationPodIP}
	case AWSAnnotator:
		return []string{annotationAWSPodIPs}
	}
	return nil
}

// Pods say how pods are read on one node. The zero value is by what the kubelet reports, with Calico's names of interfaces.
type Pods struct {
	Annotator Annotator // whose annotations count; empty: none do
	Prefix    string    // begins the names of the pods' interfaces on their nodes; empty: model.DefaultInterfacePrefix
	// Node is the name of this node. If it is set, pods of other nodes get no name of an interface and no further sources.
	Node string
	// SourceSpoofing: what pods list as further sources counts.
	SourceSpoofing bool
}

// Pod returns the workload endpoint of a pod (semantics §13). The Endpoint of the update is nil for a pod that is no endpoint
// now: not scheduled, finished, or without an address; of one in the network of its host it says just that.
func (c Pods) Pod(p *corev1.Pod) (model.EndpointUpdate, []Problem, bool) {
	update := model.EndpointUpdate{ID: model.WorkloadID(p.Namespace, p.Name)}
	if p.Spec.NodeName == "" || c.Annotator.isFinished(p) {
		return update, nil, true
	}
	if p.Spec.HostNetwork {
		update.Endpoint = &model.Endpoint{Node: p.Spec.NodeName, HostNetwork: true}
		return update, nil, true
	}
	rep := Report{ref: Ref{Kind: "Pod", Namespace: p.Namespace, Name: p.Name}}
	addrs, confirmed := rep.podAddrs(p, c.Annotator)
	if len(addrs) == 0 {
		return update, rep.Done(), true
	}
	account := cmp.Or(p.Spec.ServiceAccountName, p.Spec.DeprecatedServiceAccount, "default") // API servers fill in both fields
	labels := OwnLabels(p.Labels, 3)
	labels[LabelNamespace] = p.Namespace
	labels[LabelOrchestrator] = OrchestratorK8s
	labels[LabelServiceAccount] = account
	update.Endpoint = &model.Endpoint{
		Node:     p.Spec.NodeName,
		Iface:    c.iface(p),
		Addrs:    addrs,
		Labels:   labels,
		Profiles: []string{model.NamespaceProfile(p.Namespace), model.ServiceAccountProfile(p.Namespace, account)},
		Ports:    rep.podPorts(p),
		Sources:  c.sources(&rep, p),

		Created:     Created(p.CreationTimestamp),
		Terminating: p.DeletionTimestamp != nil,
		Unconfirmed: !confirmed,
	}
	return update, rep.Done(), true
}

func (c Pods) isElsewhere(p *corev1.Pod) bool { return c.Node != "" && c.Node != p.Spec.NodeName }

// iface is the pod's interface on its node; empty for pods of other nodes.
func (c Pods) iface(p *corev1.Pod) string {
	if c.isElsewhere(p) {
		return ""
	}
	return PodInterface(cmp.Or(c.Prefix, model.DefaultInterfacePrefix), p.Namespace, p.Name)
}

// Created is the time of creation of an object as endpoints have it, in Unix seconds, at most 4,294,967,295; 0: it has none.
func Created(at metav1.Time) uint32 {
	if at.IsZero() {
		return 0
	}
	return uint32(min(max(at.Unix(), 0), math.MaxUint32))
}

// isFinished reports whether the pod has given its addresses back: its containers have ended for good, or it is being
// deleted and Calico's CNI plugin has emptied the annotation.
func (a Annotator) isFinished(p *corev1.Pod) bool {
	if p.DeletionTimestamp != nil && a == CalicoAnnotator {
		if ip, ok := p.Annotations[annotationPodIP]; ok && ip == "" {
			return true
		}
	}
	return p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
}

// PodInterface is the name of the host's end of the pod's veth pair, as Calico's CNI plugin chooses it.
func PodInterface(prefix, namespace, name string) string {
	sum := sha1.Sum([]byte(namespace + "." + name))
	return prefix + hex.EncodeToString(sum[:])[:11]
}

// podAddrs returns the addresses from the first source that has any, and whether the kubelet is that source. It is
// asked before the CNI plugin; the plugin knows earlier.
func (r *Report) podAddrs(p *corev1.Pod, a Annotator) (addrs []netip.Addr, confirmed bool) {
	var claimed distinct[netip.Addr]
	status := field.NewPath("status")
	for i, ip := range p.Status.PodIPs {
		r.addPodAddr(&claimed, status.Child("podIPs").Index(i).Child("ip").String(), ip.IP)
	}
	if len(p.Status.PodIPs) == 0 && p.Status.PodIP != "" {
		r.addPodAddr(&claimed, status.Child("podIP").String(), p.Status.PodIP)
	}
	if len(claimed.list) > 0 {
		return claimed.list, true
	}
	for _, key := range a.keys() {
		if len(claimed.list) > 0 {
			break
		}
		path := field.NewPath("metadata", "annotations").Key(key).String()
		for text := range strings.SplitSeq(p.Annotations[key], ",") {
			if text = withoutHostMask(strings.TrimSpace(text)); text != "" {
				r.addPodAddr(&claimed, path, text)
			}
		}
	}
	return claimed.list, false
}

// withoutHostMask cuts the mask off an address written as a prefix of its full length.
func withoutHostMask(text string) string {
	if p, err := netip.ParsePrefix(text); err == nil && p.IsSingleIP() {
		return p.Addr().String()
	}
	return text
}

// podPorts returns the named ports of all containers. Without a name no rule can mean a port.
func (r *Report) podPorts(p *corev1.Pod) []model.NamedPort {
	var ports distinct[model.NamedPort]
	add := func(list string, containers []corev1.Container) {
		for i, c := range containers {
			for j, cp := range c.Ports {
				if cp.Name != "" {
					path := field.NewPath("spec", list).Index(i).Child("ports").Index(j)
					r.addPort(&ports, path.String(), cp.Name, cp.Protocol, cp.ContainerPort)
				}
			}
		}
	}
	add("containers", p.Spec.Containers)
	add("initContainers", p.Spec.InitContainers)
	return ports.list
}
