package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// register makes the Node, ready from its first moment, with room for more pods than a real one has.
func (k *Kubelet) register(ctx context.Context) error {
	name := k.Node.Name()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
	}}}
	for _, p := range k.Prefixes {
		node.Spec.PodCIDRs = append(node.Spec.PodCIDRs, p.String())
	}
	node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
	room := corev1.ResourceList{
		corev1.ResourcePods: resource.MustParse("10000"), corev1.ResourceCPU: resource.MustParse("1000"),
		corev1.ResourceMemory: resource.MustParse("10Ti"),
	}
	now := metav1.Now()
	node.Status = corev1.NodeStatus{
		Capacity: room, Allocatable: room,
		Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: now, LastTransitionTime: now,
		}},
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}},
		NodeInfo:  corev1.NodeSystemInfo{KubeletVersion: "v1.36.3", OperatingSystem: "linux", Architecture: "amd64"},
	}
	for _, a := range texts(k.Node.Addrs()) {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	_, err := k.Client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// reportRunning writes the status of a pod that serves.
func (k *Kubelet) reportRunning(ctx context.Context, p *corev1.Pod, s *sandbox) error {
	status := k.status(p, s.since)
	status.Phase = corev1.PodRunning
	status.PodIP = s.addrs[0]
	for _, a := range s.addrs {
		status.PodIPs = append(status.PodIPs, corev1.PodIP{IP: a})
	}
	for _, t := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		status.Conditions = append(status.Conditions, condition(t, corev1.ConditionTrue, ""))
	}
	started := true
	for _, c := range p.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: c.Image, ContainerID: "lab://" + string(p.UID), Ready: true, Started: &started,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(s.since)}},
		})
	}
	return k.patchStatus(ctx, p, status)
}

// reportFinished writes the status of a pod whose containers have ended. It keeps its addresses, as a kubelet has it.
func (k *Kubelet) reportFinished(ctx context.Context, p *corev1.Pod) error {
	status := k.status(p, time.Now())
	status.Phase = corev1.PodPhase(p.Annotations[AnnotationFinish])
	for _, t := range []corev1.PodConditionType{corev1.ContainersReady, corev1.PodReady} {
		status.Conditions = append(status.Conditions, condition(t, corev1.ConditionFalse, "PodCompleted"))
	}
	return notIfGone(k.patchStatus(ctx, p, status))
}

func (k *Kubelet) status(p *corev1.Pod, since time.Time) *corev1.PodStatus {
	start := metav1.NewTime(since)
	status := &corev1.PodStatus{StartTime: &start}
	for _, a := range texts(k.Node.Addrs()) {
		status.HostIPs = append(status.HostIPs, corev1.HostIP{IP: a})
	}
	status.HostIP = status.HostIPs[0].IP
	return status
}

func condition(t corev1.PodConditionType, is corev1.ConditionStatus, reason string) corev1.PodCondition {
	return corev1.PodCondition{Type: t, Status: is, Reason: reason, LastTransitionTime: metav1.Now()}
}

// patch is a merge patch of a pod that holds only for the pod with this UID.
type patch struct {
	Metadata patchMetadata     `json:"metadata"`
	Status   *corev1.PodStatus `json:"status,omitempty"`
}

type patchMetadata struct {
	UID         types.UID         `json:"uid"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

func (k *Kubelet) patchStatus(ctx context.Context, p *corev1.Pod, status *corev1.PodStatus) error {
	body, err := json.Marshal(patch{Metadata: patchMetadata{UID: p.UID}, Status: status})
	if err != nil {
		return fmt.Errorf("encode status of pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	_, err = k.Client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	return err
}

// annotate says the pod's addresses before it runs, as Calico's CNI plugin does.
func (k *Kubelet) annotate(ctx context.Context, p *corev1.Pod, s *sandbox) error {
	var all []string
	for _, a := range s.network.Addrs() {
		all = append(all, netip.PrefixFrom(a, a.BitLen()).String())
	}
	body, err := json.Marshal(patch{Metadata: patchMetadata{UID: p.UID, Annotations: map[string]string{
		"cni.projectcalico.org/podIP": all[0], "cni.projectcalico.org/podIPs": strings.Join(all, ","),
	}}})
	if err != nil {
		return fmt.Errorf("encode annotations of pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	_, err = k.Client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{})
	return err
}
