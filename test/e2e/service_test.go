package e2e

import (
	"net/netip"
	"testing"

	"github.com/margay-project/margay/internal/lab"
	"github.com/margay-project/margay/internal/testutil"
)

// D-16 and D-17: traffic to a Service is judged on the backend, in both directions of policy, and a pod always reaches
// itself through its own Service.
func TestServicesAreJudgedOnTheBackend(t *testing.T) {
	testutil.RequireCommand(t, "iptables-restore")
	c := newCluster(t, []string{"a", "b"})
	n := c.node(0)
	client, good, bad := c.pod(n, "client"), c.pod(n, "good"), c.pod(n, "bad")
	far := c.pod(c.node(1), "far", "app: good")
	vips := []netip.Addr{netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("fd96::1")}
	services := map[*lab.Pod]uint16{good: 1001, bad: 1002, far: 1003, client: 1004}
	c.write("service-all", `apiVersion: v1
kind: Service
metadata: {name: all, namespace: shop}
spec: {clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1, "fd96::1"], ports: [{port: 1001, targetPort: 80}]}
`)
	for p, port := range services {
		c.serve(p.Host, 80)
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
			timeout, outcome := never, lab.Timeout
			if want {
				timeout, outcome = soon, lab.Connected
			}
			dst := netip.AddrPortFrom(vip, services[p])
			if got := client.DialTCP(dst, timeout); got.Outcome != outcome || got.Established != want {
				t.Errorf("tcp to %s for %s: %v (%v), want %v", dst, p.Name(), got.Outcome, got.Err, outcome)
			}
			if got := client.ExchangeUDP(dst, []byte("x"), timeout); got.Outcome != outcome {
				t.Errorf("udp to %s for %s: %v (%v), want %v", dst, p.Name(), got.Outcome, got.Err, outcome)
			}
		}
	}
	for p := range services {
		through(p, true)
	}
	c.policy("client", `{podSelector: {matchLabels: {app: client}}, policyTypes: [Egress], egress: [{
  to: [{podSelector: {matchLabels: {app: good}}}]}]}`)
	c.awaitPolicies(client, 0, 1)
	through(good, true)
	through(far, true)
	through(bad, false)
	through(client, true)
	c.policy("good", `{podSelector: {matchLabels: {app: good}}, policyTypes: [Ingress]}`)
	c.awaitPolicies(good, 1, 0)
	c.awaitPolicies(far, 1, 0)
	through(good, false)
	through(far, false)
}
