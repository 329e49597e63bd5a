package validate_test

import (
	"testing"

	. "github.com/margay-project/margay/pkg/validate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A pod's life as the API server tells it, in the order of its moments: it is an endpoint from its address to the moment
// at which the address is known to be taken back, and not a moment longer.
func TestPodIsAnEndpointWhileItOwnsItsAddress(t *testing.T) {
	type change func(p *corev1.Pod)
	annotate := func(key, value string) change {
		return func(p *corev1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, value) }
	}
	phase := func(phase corev1.PodPhase) change { return func(p *corev1.Pod) { p.Status.Phase = phase } }
	scheduled := func(p *corev1.Pod) { p.Spec.NodeName = "n1" }
	addressed := func(p *corev1.Pod) {
		p.Status.PodIP, p.Status.PodIPs = "10.0.0.1", []corev1.PodIP{{IP: "10.0.0.1"}}
	}
	deleted := func(p *corev1.Pod) {
		grace := int64(30)
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{}, &grace
	}
	forced := func(p *corev1.Pod) {
		grace := int64(0)
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{}, &grace
	}
	unready := func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
	}
	type moment struct {
		what   string
		change change
		addr   string // empty: no endpoint
	}
	born := []moment{
		{"created", phase(corev1.PodPending), ""},
		{"scheduled", scheduled, ""},
		{"address known to Calico's CNI plugin", annotate("cni.projectcalico.org/podIP", "10.0.0.1/32"), "10.0.0.1"},
		{"address known to the kubelet", addressed, "10.0.0.1"},
		{"running", phase(corev1.PodRunning), "10.0.0.1"},
	}
	for name, end := range map[string][]moment{
		"deleted, Calico": {
			{"terminating", deleted, "10.0.0.1"},
			{"not ready", unready, "10.0.0.1"},
			{"address released", annotate("cni.projectcalico.org/podIP", ""), ""},
			{"failed", phase(corev1.PodFailed), ""},
		},
		"deleted, another plugin": {
			{"no annotation", func(p *corev1.Pod) { p.Annotations = nil }, "10.0.0.1"},
			{"terminating", deleted, "10.0.0.1"},
			{"succeeded", phase(corev1.PodSucceeded), ""},
		},
		"finished by itself, then deleted": {
			{"succeeded", phase(corev1.PodSucceeded), ""},
			{"terminating", deleted, ""},
		},
		"evicted":                     {{"failed", phase(corev1.PodFailed), ""}},
		"its node is lost":            {{"unknown", phase(corev1.PodUnknown), "10.0.0.1"}, {"terminating", deleted, "10.0.0.1"}},
		"deleted by force":            {{"terminating", forced, "10.0.0.1"}},
		"not ready":                   {{"not ready", unready, "10.0.0.1"}},
		"annotation lost, not a word": {{"annotation emptied", annotate("cni.projectcalico.org/podIP", ""), "10.0.0.1"}},
		"its sandbox is made anew": {
			{"another address", func(p *corev1.Pod) {
				p.Status.PodIP, p.Status.PodIPs = "10.0.0.2", []corev1.PodIP{{IP: "10.0.0.2"}}
			}, "10.0.0.2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
			for _, m := range append(born[:len(born):len(born)], end...) {
				m.change(p)
				u, problems, ok := Pods{Annotator: CalicoAnnotator}.Pod(p)
				if !ok || len(problems) > 0 {
					t.Fatalf("%s: ok %v, problems %v", m.what, ok, problems)
				}
				got := ""
				if u.Endpoint != nil {
					got = u.Endpoint.Addrs[0].String()
				}
				if got != m.addr {
					t.Errorf("%s: address %q, want %q", m.what, got, m.addr)
				}
			}
		})
	}
}
