package validate

import (
	"crypto/sha1"
	"encoding/hex"
	"net/netip"
	"strings"

	"github.com/margay-project/margay/pkg/model"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Annotations that CNI plugins write a pod's addresses to, in the order they are asked.
const (
	annotationPodIPs    = "cni.projectcalico.org/podIPs"
	annotationPodIP     = "cni.projectcalico.org/podIP"
	annotationAWSPodIPs = "vpc.amazonaws.com/pod-ips"
)

// Pod returns the workload endpoint of a pod (semantics §13). The Endpoint of the update is nil for a pod that is none
// now: not scheduled, in the network of its host, finished, or without an address.
func Pod(p *corev1.Pod) (model.EndpointUpdate, []Problem, bool) {
	update := model.EndpointUpdate{ID: model.EndpointID{Namespace: p.Namespace, Name: p.Name}}
	if p.Spec.NodeName == "" || p.Spec.HostNetwork || isFinished(p) {
		return update, nil, true
	}
	rep := report{ref: Ref{Kind: "Pod", Namespace: p.Namespace, Name: p.Name}}
	addrs := rep.podAddrs(p)
	if len(addrs) == 0 {
		return update, rep.done(), true
	}
	account := p.Spec.ServiceAccountName
	if account == "" {
		account = "default"
	}
	labels := ownLabels(p.Labels, 3)
	labels[labelNamespace] = p.Namespace
	labels[labelOrchestrator] = orchestratorK8s
	labels[labelServiceAccount] = account
	update.Endpoint = &model.Endpoint{
		Node:     p.Spec.NodeName,
		Iface:    PodInterface(DefaultInterfacePrefix, p.Namespace, p.Name),
		Addrs:    addrs,
		Labels:   labels,
		Profiles: []string{namespaceProfile(p.Namespace), serviceAccountProfile(p.Namespace, account)},
		Ports:    rep.podPorts(p),

		Terminating: p.DeletionTimestamp != nil,
	}
	return update, rep.done(), true
}

// isFinished reports whether the pod has given its addresses back: its containers have ended for good, or it is being
// deleted and Calico's CNI plugin has emptied the annotation.
func isFinished(p *corev1.Pod) bool {
	if p.DeletionTimestamp != nil {
		if ip, ok := p.Annotations[annotationPodIP]; ok && ip == "" {
			return true
		}
	}
	return p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
}

// DefaultInterfacePrefix begins the names of workload interfaces unless the CNI plugin was told otherwise.
const DefaultInterfacePrefix = "cali"

// PodInterface is the name of the host's end of the pod's veth pair, as Calico's CNI plugin chooses it.
func PodInterface(prefix, namespace, name string) string {
	sum := sha1.Sum([]byte(namespace + "." + name))
	return prefix + hex.EncodeToString(sum[:])[:11]
}

// podAddrs returns the addresses from the first source that has any. The kubelet is asked before the CNI plugin; the
// plugin knows earlier.
func (r *report) podAddrs(p *corev1.Pod) []netip.Addr {
	var addrs []netip.Addr
	status := field.NewPath("status")
	for i, ip := range p.Status.PodIPs {
		addrs = r.appendAddr(addrs, status.Child("podIPs").Index(i).Child("ip").String(), ip.IP)
	}
	if len(addrs) == 0 && p.Status.PodIP != "" && len(p.Status.PodIPs) == 0 {
		addrs = r.appendAddr(addrs, status.Child("podIP").String(), p.Status.PodIP)
	}
	for _, key := range []string{annotationPodIPs, annotationPodIP, annotationAWSPodIPs} {
		if len(addrs) > 0 {
			break
		}
		path := field.NewPath("metadata", "annotations").Key(key).String()
		for text := range strings.SplitSeq(p.Annotations[key], ",") {
			if text = withoutHostMask(strings.TrimSpace(text)); text != "" {
				addrs = r.appendAddr(addrs, path, text)
			}
		}
	}
	return addrs
}

// withoutHostMask cuts the mask off an address written as a prefix of its full length.
func withoutHostMask(text string) string {
	if p, err := netip.ParsePrefix(text); err == nil && p.IsSingleIP() {
		return p.Addr().String()
	}
	return text
}

// podPorts returns the named ports of all containers. Without a name no rule can mean a port.
func (r *report) podPorts(p *corev1.Pod) []model.NamedPort {
	var ports []model.NamedPort
	add := func(list string, containers []corev1.Container) {
		for i, c := range containers {
			for j, cp := range c.Ports {
				if cp.Name != "" {
					path := field.NewPath("spec", list).Index(i).Child("ports").Index(j)
					ports = r.appendPort(ports, path.String(), cp.Name, cp.Protocol, cp.ContainerPort)
				}
			}
		}
	}
	add("containers", p.Spec.Containers)
	add("initContainers", p.Spec.InitContainers)
	return ports
}
