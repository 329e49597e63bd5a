package cluster

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
)

const (
	podsPerNamespace = 250
	podsPerNode      = 30
	// writers is how many requests are under way at a time while a cluster is populated.
	writers = 32
)

// population is what the rest of a large cluster consists of, as its API server has it: pods of Deployments and
// StatefulSets in many namespaces, on nodes that are not there, each namespace with policies of its own. Only the API
// server knows of them.
type population struct {
	c      *cluster
	client kubernetes.Interface // speaks protobuf
	pods   int
}

// newPopulation readies a cluster for pods that nobody runs. The controllers, which would delete them, end here, and so
// does the kubelet: what is made real from here on is made so by the test.
func (c *cluster) newPopulation() *population {
	c.t.Helper()
	config := c.plane.Admin()
	config.ContentType, config.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	c.must(err)
	c.plane.StopControllerManager()
	c.plane.StopScheduler()
	for _, n := range c.nodes {
		n.kubelet.Stop()
	}
	return &population{c: c, client: client}
}

// each calls do for 0 to n-1, with several calls at a time, and fails the test at the first error.
func (c *cluster) each(n int, do func(ctx context.Context, i int) error) {
	c.t.Helper()
	g, ctx := errgroup.WithContext(c.t.Context())
	var next atomic.Int64
	for range min(writers, n) {
		g.Go(func() error {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := do(ctx, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	c.must(g.Wait())
}

// namespaceFor makes a namespace, with the service account that the controllers would have made.
func (p *population) namespaceFor(ctx context.Context, name string, labels map[string]string) error {
	_, err := p.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
	if err == nil {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		_, err = p.client.CoreV1().ServiceAccounts(name).Create(ctx, account, metav1.CreateOptions{})
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make namespace %s: %w", name, err)
	}
	return nil
}

// grow adds pods until there are as many as given.
func (p *population) grow(to int) {
	p.c.t.Helper()
	first, last := (p.pods+podsPerNamespace-1)/podsPerNamespace, (to+podsPerNamespace-1)/podsPerNamespace
	p.c.each(last-first, func(ctx context.Context, i int) error { return p.furnish(ctx, first+i) })
	from := p.pods
	p.c.each(to-from, func(ctx context.Context, i int) error { return p.create(ctx, remotePod(from+i)) })
	p.pods = to
}

func remoteNamespace(i int) string { return fmt.Sprintf("team-%d-%d", i%20, i) }

// furnish makes namespace i with two policies, neither of which is about this node's pods.
func (p *population) furnish(ctx context.Context, i int) error {
	name := remoteNamespace(i)
	labels := map[string]string{"team": fmt.Sprintf("team-%d", i%20), "env": []string{"prod", "staging", "dev"}[i%3]}
	if err := p.namespaceFor(ctx, name, labels); err != nil {
		return err
	}
	own := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "same-namespace"}, Spec: networkingv1.NetworkPolicySpec{
		Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}}},
	}}
	web := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}},
		Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": fmt.Sprintf("team-%d", (i+1)%20)}},
		}}}},
	}}
	for _, policy := range []*networkingv1.NetworkPolicy{own, web} {
		if _, err := p.client.NetworkingV1().NetworkPolicies(name).Create(ctx, policy, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make policy %s/%s: %w", name, policy.Name, err)
		}
	}
	return nil
}

// create makes a pod and then says its status, as kubelets do.
func (p *population) create(ctx context.Context, pod *corev1.Pod) error {
	status := pod.Status
	made, err := p.client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err == nil {
		made.Status = status
		_, err = p.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, made, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("make pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// shake says of pods, some at a time, that they are ready or not, which is what most updates of pods are about.
func (p *population) shake(updates int, ready corev1.ConditionStatus) {
	p.c.t.Helper()
	now := time.Now().UTC().Format(time.RFC3339)
	patch := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":%q,"lastTransitionTime":%q}]}}`, ready, now)
	p.c.each(updates, func(ctx context.Context, i int) error {
		pod := remotePod(i * (p.pods / updates))
		_, err := p.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		return err
	})
}

// forget deletes a pod at once, as a kubelet does in the end.
func (p *population) forget(ctx context.Context, namespace, name string) error {
	if err := p.client.CoreV1().Pods(namespace).Delete(ctx, name, *metav1.NewDeleteOptions(0)); err != nil {
		return fmt.Errorf("delete pod %s/%s: %w", namespace, name, err)
	}
	return nil
}

// remotePod is pod i of the others: one in twenty is of a StatefulSet and has a label that is all its own, the rest are
// of Deployments with ten pods each.
func remotePod(i int) *corev1.Pod {
	namespace, app := remoteNamespace(i/podsPerNamespace), i%podsPerNamespace/10
	name := fmt.Sprintf("app-%d-%x", app, uint32(i)*2654435761)
	labels := map[string]string{
		"app": fmt.Sprintf("app-%d", app), "app.kubernetes.io/name": fmt.Sprintf("app-%d", app), "app.kubernetes.io/part-of": namespace,
		"tier": []string{"web", "logic", "db"}[app%3], "pod-template-hash": fmt.Sprintf("%x", uint32(i/10)*2654435761),
	}
	if i%20 == 0 {
		delete(labels, "pod-template-hash")
		labels["statefulset.kubernetes.io/pod-name"] = name
	}
	addr := [4]byte{100, 64}
	binary.BigEndian.PutUint32(addr[:], 100<<24|64<<16+uint32(i))
	return podObject(namespace, name, fmt.Sprintf("node-%d", i/podsPerNode), labels, netip.AddrFrom4(addr))
}

// podObject is a pod as API servers have them, with its status.
func podObject(namespace, name, node string, labels map[string]string, addrs ...netip.Addr) *corev1.Pod {
	amount := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")}
	probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("http")}}}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels,
			Annotations: map[string]string{"kubectl.kubernetes.io/restartedAt": "2026-11-20T12:00:00Z"}},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
			Name: "main", Image: "registry.example.com/" + labels["app"] + ":v1.2.3",
			Ports:     []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}, {Name: "metrics", ContainerPort: 9090}},
			Env:       []corev1.EnvVar{{Name: "LOG_LEVEL", Value: "info"}, {Name: "DATABASE", Value: "postgres://db." + namespace + ":5432/main"}},
			Resources: corev1.ResourceRequirements{Requests: amount, Limits: amount}, ReadinessProbe: probe, LivenessProbe: probe,
		}}},
	}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: addrs[0].String(), HostIP: "10.66.0.200", StartTime: &metav1.Time{Time: time.Now()}}
	for _, a := range addrs {
		pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: a.String()})
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()})
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", Ready: true, Image: pod.Spec.Containers[0].Image,
		ImageID: pod.Spec.Containers[0].Image + "@sha256:0123456789abcdef", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}}}
	return pod
}
