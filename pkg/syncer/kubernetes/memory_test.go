package kubernetes

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/margay-project/margay/pkg/kube"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/syncer"
	"github.com/margay-project/margay/pkg/validate"
)

// podAt makes the i-th pod of a large cluster, 20 pods to a workload, as it comes from the server: no string is shared.
func podAt(t testing.TB, i int, dualStack bool) *corev1.Pod {
	workload, replica := i/20, i%20
	namespace := fmt.Sprintf("team-%03d-production", workload/5)
	name := fmt.Sprintf("service-%05d", workload)
	hash := fmt.Sprintf("%08x", workload*2654435761%(1<<32))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprintf("%s-%s-%05x", name, hash, replica*7919),
			ResourceVersion: strconv.Itoa(1_000_000 + i), UID: "0f9a7bd2-4d7e-4f4c-9b0f-7f2d2a0c1c11",
			Labels: map[string]string{
				"app.kubernetes.io/name": name, "app.kubernetes.io/instance": name + "-main", "app.kubernetes.io/part-of": "shop",
				"app.kubernetes.io/version": "1.27.3", "pod-template-hash": hash,
			},
			Annotations: map[string]string{"prometheus.io/scrape": "true"},
		},
		Spec: corev1.PodSpec{
			NodeName:           fmt.Sprintf("ip-10-%d-%d-%d.eu-central-1.compute.internal", i*7919%5000/256, i*7919%5000%256, 17),
			ServiceAccountName: "default",
			Containers: []corev1.Container{{
				Name: "main", Image: "registry.example/" + name + ":1.27.3",
				Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
				Env:   []corev1.EnvVar{{Name: "A", Value: "b"}, {Name: "C", Value: "d"}},
			}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: fmt.Sprintf("10.%d.%d.%d", 64+i>>16, i>>8&255, i&255)}}},
	}
	if dualStack {
		pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: fmt.Sprintf("fd00:10:64::%x:%x", i>>16, i&0xffff)})
	}
	wire, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	received := &corev1.Pod{}
	if err := received.Unmarshal(wire); err != nil {
		t.Fatal(err)
	}
	return received
}

// podKind is the Pod kind of a source that is not connected to anything but keep.
func podKind(t testing.TB, keep func([]model.Update)) *kind {
	return kindOf(t, "Pod", func(b syncer.Batch) {
		if len(b.Updates) > 0 {
			keep(b.Updates)
		}
	})
}

// kindOf is a kind of a source that is not connected to anything but sink.
func kindOf(t testing.TB, ref string, sink func(syncer.Batch)) *kind {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := "clusters: [{name: c, cluster: {server: 'http://api'}}]\ncontexts: [{name: a, context: {cluster: c}}]\ncurrent-context: a\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	client, err := kube.Open(kube.Options{Kubeconfig: path})
	if err != nil {
		t.Fatal(err)
	}
	source := New(client, validate.Pods{Node: "this-one"}, slog.New(slog.DiscardHandler))
	source.sink = sink
	for _, k := range source.kinds {
		if k.Ref == ref {
			return k
		}
	}
	t.Fatalf("no kind %s", ref)
	return nil
}

// list makes the kind's store see a list of n pods, converted one by one.
func list(t testing.TB, k *kind, n int, dualStack bool) {
	items := make([]any, 0, n)
	for i := range n {
		o, err := k.converted(podAt(t, i, dualStack))
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, o)
	}
	if err := k.store.Replace(items, strconv.Itoa(2_000_000)); err != nil {
		t.Fatal(err)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// bytesPerPod returns what n remote pods cost: in the source, and with the endpoints that it delivered.
func bytesPerPod(t testing.TB, n int, dualStack bool) (source, total float64) {
	var kept []model.Update
	k := podKind(t, func(us []model.Update) { copy(kept, us) })
	kept = make([]model.Update, n)
	before := heap()
	list(t, k, n, dualStack)
	with := heap()
	clear(kept)
	without := heap()
	runtime.KeepAlive(k)
	return float64(without-before) / float64(n), float64(with-before) / float64(n)
}

// A tenant can store very many policies that are not valid, and each has as many problems as are reported of one object.
func TestInvalidPoliciesCostLittle(t *testing.T) {
	const (
		policies = 2000
		most     = 6000 // bytes for each
	)
	reports := syncer.NewReports()
	k := kindOf(t, "NetworkPolicy", reports.Note)
	before := heap()
	for i := range policies {
		p := &validate.StoredNetworkPolicy{NetworkPolicy: networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{
			Namespace: "tenant", Name: fmt.Sprintf("policy-%d", i), ResourceVersion: strconv.Itoa(i + 1), UID: "0f9a7bd2"}}}
		for j := range 100 {
			peer := networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: fmt.Sprintf("10.0.0.%d/99", j)}}
			p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{peer}})
		}
		o, err := k.converted(p)
		if err != nil {
			t.Fatal(err)
		}
		if err := k.store.Add(o); err != nil {
			t.Fatal(err)
		}
	}
	each := (heap() - before) / policies
	if n := len(reports.Problems()); n < 20*policies {
		t.Fatalf("%d problems of %d policies", n, policies)
	}
	if each > most {
		t.Errorf("%d bytes for each policy, want at most %d", each, most)
	}
	runtime.KeepAlive(k)
}

func BenchmarkKubernetesBytesPerPod(b *testing.B) {
	for _, dualStack := range []bool{false, true} {
		b.Run(fmt.Sprintf("dualStack=%v", dualStack), func(b *testing.B) {
			for b.Loop() {
				source, total := bytesPerPod(b, 100_000, dualStack)
				b.ReportMetric(source, "source-B/pod")
				b.ReportMetric(total-source, "endpoint-B/pod")
				b.ReportMetric(total, "total-B/pod")
			}
		})
	}
}

func BenchmarkKubernetesConvertPod(b *testing.B) {
	k := podKind(b, func([]model.Update) {})
	pod := podAt(b, 1, true)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := k.converted(pod); err != nil {
			b.Fatal(err)
		}
	}
}

func TestRemotePodsCostLittle(t *testing.T) {
	source, total := bytesPerPod(t, 20_000, true)
	t.Logf("%.0f bytes in the source, %.0f with the endpoint", source, total)
	if source > 260 || total > 480 {
		t.Errorf("a remote pod costs %.0f bytes in the source and %.0f with its endpoint", source, total)
	}
}

// A tenant can write a rule in two bytes, and very many policies come at once when an agent starts. Until the calculation graph has them, they
// take little memory.
func TestPoliciesThatWaitCostLittle(t *testing.T) {
	const (
		policies, rules = 8, 20_000
		most            = 48 // bytes for each rule
	)
	buffer := syncer.NewBuffer()
	k := kindOf(t, "NetworkPolicy", func(b syncer.Batch) { buffer.Put(b.Updates) })
	port := intstr.FromInt32(80)
	before := heap()
	var items []any
	for i := range policies {
		p := &validate.StoredNetworkPolicy{NetworkPolicy: networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{
			Namespace: "tenant", Name: fmt.Sprintf("policy-%d", i), ResourceVersion: strconv.Itoa(i + 1)}}}
		for j := range rules {
			rule := networkingv1.NetworkPolicyIngressRule{Ports: []networkingv1.NetworkPolicyPort{{Port: &port}}}
			if j%2 == 0 {
				rule.From = []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}
			}
			p.Spec.Ingress = append(p.Spec.Ingress, rule)
		}
		o, err := k.converted(p)
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, o)
	}
	listed := (heap() - before) / (policies * rules)
	if err := k.store.Replace(items, "100"); err != nil {
		t.Fatal(err)
	}
	clear(items)
	if waits := (heap() - before) / (policies * rules); listed > most || waits > most {
		t.Errorf("a rule takes %d bytes in a list and %d when it waits for the graph, want at most %d", listed, waits, most)
	}
	updates := buffer.Drain(0)
	if n := len(updates); n != policies {
		t.Fatalf("%d policies, want %d", n, policies)
	}
	for _, u := range updates {
		if p := model.Unpack(u).(model.PolicyUpdate).Policy; len(p.Ingress) != rules || p.Ingress[1].Source.Selector != nil || p.Ingress[2].Source.Selector == nil {
			t.Errorf("%d rules, want %d", len(p.Ingress), rules)
		}
	}
	runtime.KeepAlive(k)
}
