package kubelet

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

const limit = 20 * time.Second

// site is a lab with one node, which a Kubelet serves, and one outside host.
type site struct {
	t       *testing.T
	client  *fake.Clientset
	node    *lab.Node
	outside *lab.External
	kubelet *Kubelet
}

func newSite(t *testing.T, o Options) *site {
	t.Helper()
	testutil.Privileged(t)
	l, err := lab.New()
	check(t, err)
	t.Cleanup(func() { check(t, l.Close()) })
	s := &site{t: t, client: fake.NewClientset()}
	s.node, err = l.AddNode("n1")
	check(t, err)
	s.outside, err = l.AddExternal("out")
	check(t, err)
	o.Client, o.Node, o.Log = s.client, s.node, slog.New(slog.DiscardHandler)
	s.kubelet, err = Start(t.Context(), o)
	check(t, err)
	t.Cleanup(s.kubelet.Stop)
	return s
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// create makes a pod that serves TCP and UDP on port 80; its UID is given, since the client in memory gives none.
func (s *site) create(name, uid string, annotations map[string]string) {
	s.t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", UID: types.UID(uid), Annotations: annotations},
		Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{
			Name: "c", Ports: []corev1.ContainerPort{{ContainerPort: 80}, {ContainerPort: 80, Protocol: corev1.ProtocolUDP}},
		}}},
	}
	_, err := s.client.CoreV1().Pods("shop").Create(s.t.Context(), p, metav1.CreateOptions{})
	check(s.t, err)
}

// await waits until the API has the pod as it should be.
func (s *site) await(name, what string, as func(*corev1.Pod) bool) *corev1.Pod {
	s.t.Helper()
	var p *corev1.Pod
	testutil.WaitFor(s.t, limit, name+" "+what, func() bool {
		var err error
		p, err = s.client.CoreV1().Pods("shop").Get(s.t.Context(), name, metav1.GetOptions{})
		return err == nil && as(p)
	})
	return p
}

func running(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning }

// serves demands that both servers of the pod answer the outside host, over both families.
func (s *site) serves(addrs []netip.Addr) {
	s.t.Helper()
	for _, a := range addrs {
		at := netip.AddrPortFrom(a, 80)
		if got := echo.DialTCP(s.outside.Host, at, limit); got.Outcome != echo.Connected {
			s.t.Errorf("tcp %v: %v", at, got.Err)
		}
		if got := echo.ExchangeUDP(s.outside.Host, at, []byte("x"), limit); got.Outcome != echo.Connected {
			s.t.Errorf("udp %v: %v", at, got.Err)
		}
	}
}

func TestNodeIsRegistered(t *testing.T) {
	s := newSite(t, Options{})
	n, err := s.client.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
	check(t, err)
	var addrs []string
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			addrs = append(addrs, a.Address)
		}
	}
	if strings.Join(addrs, " ") != "10.66.0.1 fd66::1" || len(n.Spec.PodCIDRs) != 2 {
		t.Errorf("node has addresses %q and pod CIDRs %q", addrs, n.Spec.PodCIDRs)
	}
}

func TestPodLivesAndDies(t *testing.T) {
	s := newSite(t, Options{})
	s.create("a", "1", nil)
	p := s.await("a", "to run", running)
	real := s.node.Pod("shop", "a")
	if real == nil || len(p.Status.PodIPs) != 2 || p.Status.PodIP != real.Addr4().String() || p.Status.PodIPs[1].IP != real.Addr6().String() {
		t.Fatalf("pod has the status %+v and in the lab %v", p.Status.PodIPs, real)
	}
	s.serves(real.Addrs())

	check(t, s.client.CoreV1().Pods("shop").Delete(t.Context(), "a", metav1.DeleteOptions{}))
	testutil.WaitFor(t, limit, "the pod to lose its network", func() bool { return s.node.Pod("shop", "a") == nil })
}

func TestPodOfTheSameNameIsAnother(t *testing.T) {
	s := newSite(t, Options{})
	s.create("a", "1", nil)
	s.await("a", "to run", running)
	first := s.node.Pod("shop", "a")
	check(t, s.client.CoreV1().Pods("shop").Delete(t.Context(), "a", metav1.DeleteOptions{}))
	s.create("a", "2", nil)
	s.await("a", "to run again", running)
	second := s.node.Pod("shop", "a")
	if second == nil || second == first {
		t.Fatalf("the second pod of the name has the first one's network: %v", second)
	}
	s.serves(second.Addrs())
}

func TestAddressesOfTheTestsChoice(t *testing.T) {
	s := newSite(t, Options{})
	s.create("a", "1", map[string]string{AnnotationAddresses: "10.65.1.77"})
	p := s.await("a", "to run", running)
	if len(p.Status.PodIPs) != 1 || p.Status.PodIP != "10.65.1.77" {
		t.Errorf("pod has addresses %v", p.Status.PodIPs)
	}
	s.serves([]netip.Addr{netip.MustParseAddr("10.65.1.77")})
}

func TestFinishedPodLosesItsNetwork(t *testing.T) {
	s := newSite(t, Options{})
	s.create("a", "1", nil)
	p := s.await("a", "to run", running)
	_, err := s.client.CoreV1().Pods("shop").Patch(t.Context(), "a", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+AnnotationFinish+`":"Succeeded"}}}`), metav1.PatchOptions{})
	check(t, err)
	after := s.await("a", "to succeed", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
	if after.Status.PodIP != p.Status.PodIP {
		t.Errorf("the status of the finished pod has address %q, want still %q", after.Status.PodIP, p.Status.PodIP)
	}
	if s.node.Pod("shop", "a") != nil {
		t.Error("the finished pod has a network")
	}
}

func TestDeletedPodLingers(t *testing.T) {
	s := newSite(t, Options{})
	const short = 100 * time.Millisecond
	started := map[string]time.Time{}
	for name, linger := range map[string]time.Duration{"long": time.Hour, "short": short} {
		s.create(name, name, map[string]string{AnnotationLinger: linger.String()})
		p := s.await(name, "to run", running)
		now := metav1.Now()
		p.DeletionTimestamp, p.Finalizers = &now, []string{"test/finalizer"}
		started[name] = time.Now()
		_, err := s.client.CoreV1().Pods("shop").Update(t.Context(), p, metav1.UpdateOptions{})
		check(t, err)
	}
	testutil.WaitFor(t, limit, "the API to have forgotten the pod", func() bool {
		_, err := s.client.CoreV1().Pods("shop").Get(t.Context(), "short", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	if took := time.Since(started["short"]); took < short || s.node.Pod("shop", "short") != nil {
		t.Errorf("pod was forgotten after %v, in the lab: %v", took, s.node.Pod("shop", "short"))
	}
	long := s.node.Pod("shop", "long")
	if long == nil {
		t.Fatal("the pod that lingers has lost its network")
	}
	s.serves(long.Addrs())
}

func TestPodWaitsForItsStatusFile(t *testing.T) {
	dir := t.TempDir()
	s := newSite(t, Options{StatusDir: dir, StatusTimeout: time.Minute})
	s.create("a", "1", nil)
	p := s.await("a", "to say its addresses", func(p *corev1.Pod) bool { return p.Annotations["cni.projectcalico.org/podIPs"] != "" })
	addr := s.node.Pod("shop", "a").Addr4()
	if got := echo.DialTCP(s.outside.Host, netip.AddrPortFrom(addr, 80), limit); got.Outcome != echo.Refused || running(p) {
		t.Errorf("before the file: %v, %s", got.Outcome, p.Status.Phase)
	}
	check(t, os.WriteFile(filepath.Join(dir, "k8s shop%2Fa eth0"), nil, 0o600))
	s.await("a", "to run", running)
	s.serves([]netip.Addr{addr})
	if s.kubelet.Late() != 0 {
		t.Error("the pod counts as late")
	}
}

func TestPodRunsWithoutItsStatusFileInTheEnd(t *testing.T) {
	s := newSite(t, Options{StatusDir: t.TempDir(), StatusTimeout: 50 * time.Millisecond})
	s.create("a", "1", nil)
	s.await("a", "to run", running)
	if s.kubelet.Late() != 1 {
		t.Errorf("%d pods count as late, want 1", s.kubelet.Late())
	}
}
