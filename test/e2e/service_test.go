package e2e

import (
	"net/netip"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// D-16 and D-17: traffic to a Service is judged on the backend, in both directions of policy, and a pod always reaches
// itself through its own Service.
func TestServicesAreJudgedOnTheBackend(t *testing.T) {
	testutil.RequireCommand(t, "iptables-restore")
	c := newCluster(t, []string{"a", "b"})
	n := c.Node(0)
	client, good, bad := c.Pod(n, "client"), c.Pod(n, "good"), c.Pod(n, "bad")
	far := c.Pod(c.Node(1), "far", "app: good")
	vips := []netip.Addr{netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("fd96::1")}
	services := map[*lab.Pod]uint16{good: 1001, bad: 1002, far: 1003, client: 1004}
	c.Write("service-all", `apiVersion: v1
kind: Service
metadata: {name: all, namespace: shop}
spec: {clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1, "fd96::1"], ports: [{port: 1001, targetPort: 80}]}
`)
	for p, port := range services {
		c.Serve(p.Host, 80)
		for _, vip := range vips {
			for _, protocol := range []string{"tcp", "udp"} {
				if err := n.SetService(lab.Service{
					Addr: netip.AddrPortFrom(vip, port), Protocol: protocol,
					Backends: []netip.AddrPort{netip.AddrPortFrom(p.Addr(vip.Is6()), 80)},
				}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	through := func(p *lab.Pod, want bool) {
		t.Helper()
		for _, vip := range vips {
			timeout, outcome := never, echo.Timeout
			if want {
				timeout, outcome = soon, echo.Connected
			}
			dst := netip.AddrPortFrom(vip, services[p])
			if got := echo.DialTCP(client.Host, dst, timeout); got.Outcome != outcome || got.Established != want {
				t.Errorf("tcp to %s for %s: %v (%v), want %v", dst, p.Name(), got.Outcome, got.Err, outcome)
			}
			if got := echo.ExchangeUDP(client.Host, dst, []byte("x"), timeout); got.Outcome != outcome {
				t.Errorf("udp to %s for %s: %v (%v), want %v", dst, p.Name(), got.Outcome, got.Err, outcome)
			}
		}
	}
	for p := range services {
		through(p, true)
	}
	c.Policy("client", `{podSelector: {matchLabels: {app: client}}, policyTypes: [Egress], egress: [{
  to: [{podSelector: {matchLabels: {app: good}}}]}]}`)
	c.AwaitPolicies(client, 0, 1)
	through(good, true)
	through(far, true)
	through(bad, false)
	through(client, true)
	c.Policy("good", `{podSelector: {matchLabels: {app: good}}, policyTypes: [Ingress]}`)
	c.AwaitPolicies(good, 1, 0)
	c.AwaitPolicies(far, 1, 0)
	through(good, false)
	through(far, false)
}

// TestOnePortToAPodAndToItsService: the kernel gives a flow to a Service the ends that a flow of the same pod to the backend has had
// before. In BPF mode that one went past the node's stack, which has to translate answers of the later one back.
func TestOnePortToAPodAndToItsService(t *testing.T) {
	testutil.RequireCommand(t, "iptables-restore")
	c := newCluster(t, oneNode)
	n := c.Node(0)
	client, server := c.Pod(n, "client"), c.Pod(n, "server")
	c.Serve(server.Host, 80)
	for i, v6 := range []bool{false, true} {
		vip, direct := netip.MustParseAddr([]string{"10.96.0.1", "fd96::1"}[i]), netip.AddrPortFrom(server.Addr(v6), 80)
		service := netip.AddrPortFrom(vip, 80)
		if err := n.SetService(lab.Service{Addr: service, Protocol: "udp", Backends: []netip.AddrPort{direct}}); err != nil {
			t.Fatal(err)
		}
		from := netip.AddrPortFrom(client.Addr(v6), 40001)
		for _, to := range []netip.AddrPort{direct, service, direct, service} {
			if got := echo.ExchangeUDPFrom(client.Host, from, to, []byte("x"), soon); got.Outcome != echo.Connected {
				t.Errorf("from %v to %v: %v (%v)", from, to, got.Outcome, got.Err)
			}
		}
	}
}

// The kernel numbers interfaces up to 2^31. A pod with a large number is judged by its own policy behind the translation, too, and not by that of
// the pod whose number has the same low bits.
func TestAPodWithALargeInterfaceNumberIsJudgedByItsOwnPolicy(t *testing.T) {
	testutil.RequireCommand(t, "iptables-restore")
	c := newCluster(t, oneNode)
	n := c.Node(0)
	c.Write("service", `apiVersion: v1
kind: Service
metadata: {name: server, namespace: shop}
spec: {clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1], ports: [{port: 80}]}
`)
	server, free := c.Pod(n, "server"), c.Pod(n, "free")
	client, err := n.AddNumberedPod("shop", "client", free.IfIndex()+1<<29)
	if err != nil {
		t.Fatal(err)
	}
	c.Declare(client)
	c.Policy("client", `{podSelector: {matchLabels: {app: client}}, policyTypes: [Egress]}`)
	c.AwaitEndpoint(client)
	c.AwaitPolicies(client, 0, 1)
	_, udp := c.Serve(server.Host, 80)
	front := netip.MustParseAddrPort("10.96.0.1:80")
	if err := n.SetService(lab.Service{Addr: front, Protocol: "udp", Backends: []netip.AddrPort{udp.Addr4()}}); err != nil {
		t.Fatal(err)
	}
	if got := echo.ExchangeUDP(free.Host, front, []byte("x"), soon); got.Outcome != echo.Connected {
		t.Fatalf("from a pod without policy: %v (%v)", got.Outcome, got.Err)
	}
	before := udp.Received()
	if got := echo.ExchangeUDP(client.Host, front, []byte("x"), never); got.Outcome != echo.Timeout || udp.Received() != before {
		t.Errorf("from a pod that may send nothing: %v (%v), and the backend got %d datagrams", got.Outcome, got.Err, udp.Received()-before)
	}
}
