package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/margay-project/margay/internal/corpus"
	"github.com/margay-project/margay/internal/kubelet"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/model"
)

const (
	// podLabel is a label that pods have for the Services of the stage, beside those of the case.
	podLabel = "margay.test/pod"
	// keepFinalizer keeps a pod in the API that is gone from its node.
	keepFinalizer = "margay.test/keep"
	// cniAddress is the annotation in which Calico's CNI plugin says a pod's address, and empties when it is gone.
	cniAddress = "cni.projectcalico.org/podIP"
)

// stagedPod is a pod of the case, or an earlier one, that has been brought about.
type stagedPod struct {
	text    string   // all the documents it came from
	network *lab.Pod // nil: it has none (any more)
	serving bool     // and is known to
}

// placePods makes the pods of the API those of the case, each brought to where the case's status says that it is. Those
// that are so already stay.
func (s *corpusStage) placePods(c corpus.Case) {
	s.t.Helper()
	versions := map[model.EndpointID][]corpus.Document{}
	for _, d := range c.Documents {
		if d.Kind == "Pod" {
			id := model.WorkloadID(d.Namespace, d.Name)
			versions[id] = append(versions[id], d)
		}
	}
	s.removePods(func(id model.EndpointID, p *stagedPod) bool { return p.text == corpus.Manifest(versions[id]) })
	var waits []func()
	for _, d := range c.Documents {
		id := model.WorkloadID(d.Namespace, d.Name)
		if d.Kind != "Pod" || s.pods[id] != nil && s.pods[id].text == corpus.Manifest(versions[id]) {
			continue
		}
		if before := s.pods[id]; before != nil {
			s.replacePod(id, before, d)
			continue
		}
		s.pods[id] = &stagedPod{text: string(d.Text)}
		s.demandImage(d)
		p := s.podOfCase(d)
		s.createPod(p)
		if p.end == "" && len(versions[id]) == 1 {
			waits = append(waits, func() { s.bring(id, p) }) // it starts while others do
			continue
		}
		for _, wait := range waits {
			wait()
		}
		waits = nil
		s.bring(id, p)
	}
	for _, wait := range waits {
		wait()
	}
	for id, docs := range versions {
		s.pods[id].text = corpus.Manifest(docs)
	}
	for id, e := range c.Endpoints() {
		if p := s.pods[id].network; p == nil || !slices.Equal(p.Addrs(), e.Addrs) || p.Node().Name() != e.Node {
			s.t.Fatalf("%s: pod %s is not on %s with %v", c.Name, id, e.Node, e.Addrs)
		}
	}
}

// casePod is a pod as the API server takes it, and what is to become of it.
type casePod struct {
	corev1.Pod
	end string // of its life: "", Succeeded, Failed, leaving or left
}

// podOfCase makes the pod of a document. What only a kubelet may say, its status, and deletion are brought about by what
// leads to them. The API server demands an image.
func (s *corpusStage) podOfCase(d corpus.Document) casePod {
	s.t.Helper()
	var p casePod
	s.must(yaml.UnmarshalStrict(d.Text, &p.Pod))
	status, deleted := p.Status, p.DeletionTimestamp != nil
	p.Status, p.DeletionTimestamp = corev1.PodStatus{}, nil
	for i := range p.Spec.Containers {
		p.Spec.Containers[i].Image = "none"
	}
	for i := range p.Spec.InitContainers {
		p.Spec.InitContainers[i].Image = "none"
	}
	if p.Labels == nil {
		p.Labels = map[string]string{}
	}
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Labels[podLabel] = p.Name
	addresses := podAddresses(status, p.Annotations)
	switch {
	case p.Spec.HostNetwork:
	case p.Spec.NodeName == "":
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: podLabel}} // the scheduler leaves it alone
	case addresses == "":
		p.Annotations[kubelet.AnnotationAddresses] = "none" // which fails, and is tried again: it waits for its network
	default:
		p.Annotations[kubelet.AnnotationAddresses] = addresses
	}
	empty, annotated := p.Annotations[cniAddress]
	switch {
	case deleted && annotated && empty == "":
		p.end, p.Finalizers = "left", []string{keepFinalizer}
		delete(p.Annotations, cniAddress)
	case deleted:
		p.end, p.Annotations[kubelet.AnnotationLinger] = "leaving", "1h"
	case status.Phase == corev1.PodSucceeded || status.Phase == corev1.PodFailed:
		p.end = string(status.Phase)
	case status.Phase == corev1.PodPending && addresses != "":
		p.Annotations[kubelet.AnnotationSilent] = "true"
	}
	return p
}

// podAddresses are the addresses that a status, or else the CNI plugin's annotation, says, as the kubelet wants them.
func podAddresses(status corev1.PodStatus, annotations map[string]string) string {
	var all []string
	for _, ip := range status.PodIPs {
		all = append(all, ip.IP)
	}
	if len(all) == 0 && status.PodIP != "" {
		all = append(all, status.PodIP)
	}
	if len(all) == 0 {
		for part := range strings.SplitSeq(annotations[cniAddress+"s"], ",") {
			if address, _, ok := strings.Cut(part, "/"); ok {
				all = append(all, address)
			}
		}
	}
	return strings.Join(all, ",")
}

// demandImage demands that the API server refuses the pod as it is written, for want of an image and of nothing else.
func (s *corpusStage) demandImage(d corpus.Document) {
	s.t.Helper()
	var p corev1.Pod
	s.must(yaml.UnmarshalStrict(d.Text, &p))
	_, err := s.client.CoreV1().Pods(p.Namespace).Create(s.t.Context(), &p, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) || status.Status().Details == nil {
		s.t.Fatalf("the API server did not refuse pod %s/%s without an image: %v", p.Namespace, p.Name, err)
	}
	for _, cause := range status.Status().Details.Causes {
		if !strings.HasSuffix(cause.Field, ".image") {
			s.t.Errorf("the API server refuses pod %s/%s for more than an image: %v", p.Namespace, p.Name, err)
		}
	}
}

func (s *corpusStage) createPod(p casePod) {
	s.t.Helper()
	_, err := s.client.CoreV1().Pods(p.Namespace).Create(s.t.Context(), &p.Pod, metav1.CreateOptions{})
	s.must(err)
}

// bring waits until a pod that has been created runs and is enforced, and then brings it to its end.
func (s *corpusStage) bring(id model.EndpointID, p casePod) {
	s.t.Helper()
	staged := s.pods[id]
	switch addresses := p.Annotations[kubelet.AnnotationAddresses]; {
	case len(p.Spec.SchedulingGates) > 0 || addresses == "none":
		s.awaitPod(id.Namespace, id.Name, "to be pending", func(now *corev1.Pod) bool {
			return now.Status.Phase == corev1.PodPending && now.Status.PodIP == ""
		})
		return
	case p.Spec.HostNetwork:
		s.awaitRunning(id.Namespace, id.Name)
		return
	case p.Annotations[kubelet.AnnotationSilent] != "":
		testutil.WaitFor(s.t, soon, "the network of "+p.Name, func() bool { return s.lookup(&p.Pod) != nil })
		staged.network = s.lookup(&p.Pod)
	default:
		staged.network = s.awaitRunning(id.Namespace, id.Name)
		staged.serving = true
	}
	s.must(s.route(staged.network, true))
	s.awaitEnforced(staged.network)
	if p.end != "" {
		s.end(id, p)
	}
}

// end finishes or deletes a pod. All but the one that is leaving lose their network by that.
func (s *corpusStage) end(id model.EndpointID, p casePod) {
	s.t.Helper()
	staged := s.pods[id]
	staged.serving = false
	pods := s.client.CoreV1().Pods(id.Namespace)
	switch p.end {
	case "Succeeded", "Failed":
		s.annotatePod(id.Namespace, id.Name, fmt.Sprintf(`{%q:%q}`, kubelet.AnnotationFinish, p.end))
		s.awaitPod(id.Namespace, id.Name, "to have finished", func(now *corev1.Pod) bool { return string(now.Status.Phase) == p.end })
	default:
		s.must(pods.Delete(s.t.Context(), id.Name, metav1.DeleteOptions{}))
		s.awaitPod(id.Namespace, id.Name, "to be deleted", func(now *corev1.Pod) bool { return now.DeletionTimestamp != nil })
	}
	if p.end == "leaving" {
		return
	}
	s.awaitUnplugged(id, staged)
	if p.end == "left" {
		s.annotatePod(id.Namespace, id.Name, fmt.Sprintf(`{%q:""}`, cniAddress))
	}
}

func (s *corpusStage) awaitUnplugged(id model.EndpointID, p *stagedPod) {
	s.t.Helper()
	if p.network == nil {
		return
	}
	n := p.network.Node()
	testutil.WaitFor(s.t, soon, "the network of "+id.String()+" to be gone", func() bool { return n.Pod(id.Namespace, id.Name) != p.network })
	s.must(s.route(p.network, false))
	p.network = nil
}

// replacePod makes a pod what a later document says. The API server takes no pod whose containers or node are others: a
// pod that is the same but for its labels gets those, and else the pod is made anew.
func (s *corpusStage) replacePod(id model.EndpointID, before *stagedPod, d corpus.Document) {
	s.t.Helper()
	want := s.podOfCase(d)
	pods := s.client.CoreV1().Pods(id.Namespace)
	have, err := pods.Get(s.t.Context(), id.Name, metav1.GetOptions{})
	s.must(err)
	changed := have.DeepCopy()
	changed.Labels, changed.Spec.NodeName, changed.Spec.Containers = want.Labels, want.Spec.NodeName, want.Spec.Containers
	if _, err := pods.Update(s.t.Context(), changed, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		s.t.Fatalf("the API server did not refuse to change pod %s: %v", id, err)
	}
	same := have.Spec.NodeName == want.Spec.NodeName &&
		have.Annotations[kubelet.AnnotationAddresses] == want.Annotations[kubelet.AnnotationAddresses]
	if !same {
		s.removePods(func(other model.EndpointID, _ *stagedPod) bool { return other != id })
		s.pods[id] = &stagedPod{}
		s.createPod(want)
		s.bring(id, want)
		return
	}
	labels := map[string]*string{}
	for key := range have.Labels {
		labels[key] = nil
	}
	for key, value := range want.Labels {
		labels[key] = &value
	}
	text, err := json.Marshal(labels)
	s.must(err)
	s.labelPod(id.Namespace, id.Name, string(text))
}

// removePods removes all pods but those to keep, at once, and waits until they are gone.
func (s *corpusStage) removePods(keep func(model.EndpointID, *stagedPod) bool) {
	s.t.Helper()
	var gone []model.EndpointID
	now := int64(0)
	for id, p := range s.pods {
		if keep(id, p) {
			continue
		}
		gone = append(gone, id)
		s.patch(id.Namespace, id.Name, `{"metadata":{"finalizers":null}}`)
		err := s.client.CoreV1().Pods(id.Namespace).Delete(s.t.Context(), id.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})
		if !apierrors.IsNotFound(err) { // that was its last finalizer
			s.must(err)
		}
	}
	for _, id := range gone {
		testutil.WaitFor(s.t, time.Minute, "pod "+id.String()+" to be gone", func() bool {
			_, err := s.client.CoreV1().Pods(id.Namespace).Get(s.t.Context(), id.Name, metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		})
		s.awaitUnplugged(id, s.pods[id])
		delete(s.pods, id)
	}
}
