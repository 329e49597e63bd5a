package cluster

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/margay-project/margay/internal/kubelet"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// Without an agent, the cluster itself is what a cluster is: pods are scheduled, run, and reach one another directly and
// through Services, over both families, in both of kube-proxy's modes.
func TestTheClusterWorksWithoutAnAgent(t *testing.T) {
	for _, mode := range []string{"iptables", "nftables"} {
		t.Run(mode, func(t *testing.T) {
			c := newCluster(t, options{proxy: mode, noAgents: true})
			c.namespace("shop", "team: shop")
			client := c.pod("shop", "client", "n1")
			near, far := c.pod("shop", "near", "n1", "app: web"), c.pod("shop", "far", "n2", "app: web")
			self := c.podOf("shop", "own", podSpec{node: "n2", labels: []string{"app: host"}, ports: []uint16{8080}, hostNetwork: true})
			if self != nil {
				t.Errorf("pod of the host's network has one of its own: %v", self.Addrs())
			}
			c.reach(client.Host, near.Host, 80, true)
			c.reach(client.Host, far.Host, 80, true)
			c.reach(client.Host, far.Host, 0, true)
			c.reach(client.Host, c.nodes[1].Host, 8080, true)
			c.reach(c.nodes[0].Host, far.Host, 80, true)
			web := c.service("shop", "web", "app: web")
			for _, n := range c.nodes {
				c.awaitService(n.Host, web, 80)
			}
			c.reachService(client.Host, web, 80, true)
			c.reachService(far.Host, web, 80, true)
			c.deletePod("shop", "near")
			c.reachAt(client.Host, near.Addrs(), 80, false)
			c.awaitService(client.Host, web, 80)
			if err := c.plane.Err(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A pod that waits for its policy, as with Calico's CNI plugin, never runs unprotected, and never waits in vain.
func TestPodsWaitForTheirPolicy(t *testing.T) {
	c := newCluster(t, options{proxy: "none", waitForPolicy: true})
	c.namespace("shop")
	c.policy("shop", "deny", "{podSelector: {}}")
	c.settle()
	client := c.nodes[1].Host
	for _, name := range []string{"a", "b", "c"} {
		p := c.podOf("shop", name, podSpec{node: "n1"})
		c.reach(client, p.Host, 80, false)
		file := filepath.Join(c.nodes[0].agent.statusDir(), kubelet.StatusFile("shop", name))
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	}
	if late := c.nodes[0].kubelet.Late(); late != 0 {
		t.Errorf("%d pods ran before their status file came", late)
	}
	c.deletePolicy("shop", "deny")
	c.settle()
	c.reach(client, c.nodes[0].Pod("shop", "a").Host, 80, true)
}

// What the stand-in for the kubelet does with pods is what the API server, the controllers and the scheduler expect.
func TestPodsOfControllersComeAndGo(t *testing.T) {
	c := newCluster(t, options{proxy: "nftables", noAgents: true})
	c.namespace("shop")
	outside := c.external("outside")
	const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 4
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: none, ports: [{containerPort: 80}, {containerPort: 80, protocol: UDP}]}]}
`
	pods := func(is func(corev1.Pod) bool) (n int) {
		list, err := c.client.CoreV1().Pods("shop").List(t.Context(), metav1.ListOptions{})
		c.must(err)
		for _, p := range list.Items {
			if is(p) {
				n++
			}
		}
		return n
	}
	c.apply(deployment)
	testutil.WaitFor(t, soon, "four replicas to run", func() bool {
		return pods(func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning }) == 4
	})
	web := c.service("shop", "web", "app: web", "type: NodePort", "externalTrafficPolicy: Cluster")
	c.awaitService(c.nodes[0].Host, web, 80)
	for _, port := range web.Spec.Ports {
		if port.Protocol == corev1.ProtocolTCP {
			at := netip.AddrPortFrom(c.nodes[0].Addr4(), uint16(port.NodePort))
			if got := echo.DialTCP(outside.Host, at, soon); got.Outcome != echo.Connected {
				t.Errorf("node port %v from outside: %v", at, got.Err)
			}
		}
	}
	c.delete(deployment)
	testutil.WaitFor(t, soon, "the replicas to be gone", func() bool { return pods(func(corev1.Pod) bool { return true }) == 0 })

	job := c.pod("shop", "job", "n2")
	c.reach(outside.Host, job.Host, 80, true)
	c.annotatePod("shop", "job", `{"`+kubelet.AnnotationFinish+`":"Succeeded"}`)
	done := c.awaitPod("shop", "job", "to succeed", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
	if done.Status.PodIP != job.Addr4().String() || c.lookup(done) != nil {
		t.Errorf("the finished pod says address %s and has %v", done.Status.PodIP, c.lookup(done))
	}
}
