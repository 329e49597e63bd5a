package e2e

import (
	"net/netip"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// virtual is a cluster whose node 0 translates Services by IPVS: to three pods here and one elsewhere, to the node itself,
// and to the client.
type virtual struct {
	*cluster
	client, good, bad, far *lab.Pod
	ports                  map[*lab.Host]uint16 // of the Service in front of each
	vips                   []netip.Addr
}

func newVirtual(t *testing.T, flags ...string) *virtual {
	t.Helper()
	testcluster.NeedsBPF(t, "packets of IPVS do not pass the chain in which packets are judged: docs/iptables.md says so")
	testutil.RequireKernel(t, "IPVS", lab.IPVSMissing())
	testutil.RequireCommand(t, "ipvsadm")
	c := newCluster(t, []string{"a", "b"}, flags...)
	n := c.Node(0)
	v := &virtual{
		cluster: c, client: c.Pod(n, "client"), good: c.Pod(n, "good"), bad: c.Pod(n, "bad"), far: c.Pod(c.Node(1), "far", "app: good"),
		vips: []netip.Addr{netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("fd96::1")},
	}
	v.ports = map[*lab.Host]uint16{v.good.Host: 1001, v.bad.Host: 1002, v.far.Host: 1003, v.client.Host: 1004, n.Host: 1005}
	c.Write("service-all", `apiVersion: v1
kind: Service
metadata: {name: all, namespace: shop}
spec: {clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1, "fd96::1"], ports: [{port: 1001, targetPort: 80}]}
`)
	for h, port := range v.ports {
		c.Serve(h, 80)
		v.set(t, port, h)
	}
	return v
}

// set puts a backend behind the Service of a port.
func (v *virtual) set(t *testing.T, port uint16, backend *lab.Host) {
	t.Helper()
	for _, vip := range v.vips {
		for _, protocol := range []string{"tcp", "udp"} {
			if err := v.Node(0).SetIPVS(lab.Service{
				Addr: netip.AddrPortFrom(vip, port), Protocol: protocol,
				Backends: []netip.AddrPort{netip.AddrPortFrom(backend.Addr(vip.Is6()), 80)},
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// through wants the client to reach the host by its Service, or not.
func (v *virtual) through(t *testing.T, h *lab.Host, want bool) {
	t.Helper()
	for _, vip := range v.vips {
		timeout, outcome := never, echo.Timeout
		if want {
			timeout, outcome = soon, echo.Connected
		}
		dst := netip.AddrPortFrom(vip, v.ports[h])
		if got := echo.DialTCP(v.client.Host, dst, timeout); got.Outcome != outcome || got.Established != want {
			t.Errorf("tcp to %s for %s: %v (%v), want %v", dst, h.Name(), got.Outcome, got.Err, outcome)
		}
		if got := echo.ExchangeUDP(v.client.Host, dst, []byte("x"), timeout); got.Outcome != outcome {
			t.Errorf("udp to %s for %s: %v (%v), want %v", dst, h.Name(), got.Outcome, got.Err, outcome)
		}
	}
}

// live begins connections and flows of the client through the Service of a port, of both families.
func (v *virtual) live(t *testing.T, port uint16) []live {
	t.Helper()
	var all []live
	for _, vip := range v.vips {
		dst := netip.AddrPortFrom(vip, port)
		stream, err := echo.StartStream(v.client.Host, dst, echo.StreamOptions{Interval: 5 * time.Millisecond, Timeout: soon / 2})
		if err != nil {
			t.Fatal(err)
		}
		flow, err := traffic.StartUDPFlow(v.client.Host, dst, traffic.UDPFlowOptions{Interval: 5 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		l := live{t, stream, flow}
		l.awaitMore("through IPVS")
		all = append(all, l)
	}
	return all
}

const toGood = `{podSelector: {matchLabels: {app: client}}, policyTypes: [Egress], egress: [{
  to: [{podSelector: {matchLabels: {app: good}}}]}]}`

// D-17: IPVS translates later than every other kube-proxy does, and its Services are judged on the backend all the same.
func TestIPVSServicesAreJudgedOnTheBackend(t *testing.T) {
	v := newVirtual(t)
	for h := range v.ports {
		v.through(t, h, true)
	}
	v.Policy("client", toGood)
	v.AwaitPolicies(v.client, 0, 1)
	v.through(t, v.good.Host, true)
	v.through(t, v.far.Host, true)
	v.through(t, v.client.Host, true)
	v.through(t, v.bad.Host, false)
	v.through(t, v.Node(0).Host, false)
	v.Policy("good", `{podSelector: {matchLabels: {app: good}}, policyTypes: [Ingress]}`)
	v.AwaitPolicies(v.good, 1, 0)
	v.AwaitPolicies(v.far, 1, 0)
	v.through(t, v.good.Host, false)
	v.through(t, v.far.Host, false)
}

// D-11 through IPVS: what a change denies is cut, TCP by resets; what it allows is not disturbed.
func TestIPVSFlowsFollowPolicy(t *testing.T) {
	v := newVirtual(t)
	stay := append(v.live(t, v.ports[v.good.Host]), v.live(t, v.ports[v.far.Host])...)
	cut := v.live(t, v.ports[v.bad.Host])
	v.Policy("client", toGood)
	v.AwaitPolicies(v.client, 0, 1)
	for _, l := range cut {
		testutil.WaitFor(t, soon, "the denied connection to end", func() bool { return l.stream.Result().Errors > 0 })
		if r := l.stream.Result(); !wasReset(r) {
			t.Errorf("the denied connection timed out rather than being reset: %+v", r)
		}
		testutil.WaitFor(t, soon, "the denied UDP flow to end", func() bool { return l.flow.Result().LongestGap > aGap })
	}
	for _, l := range stay {
		l.awaitMore("that is allowed")
		l.stopUndisturbed()
	}
	for _, l := range cut {
		if r := l.stream.Stop(); r.Connects != 1 {
			t.Errorf("the denied connection was made again: %+v", r)
		}
		if r := l.flow.StopCut(); r.LongestGap != r.Lost {
			t.Errorf("datagrams of a denied flow got through after all: %+v", r)
		}
	}
}

// D-21 through IPVS, which remembers by itself where a flow goes: another backend is judged whatever was allowed before.
func TestIPVSFlowsThatMoveAreJudged(t *testing.T) {
	v := newVirtual(t)
	v.Policy("client", toGood)
	v.AwaitPolicies(v.client, 0, 1)
	port := v.ports[v.good.Host]
	flows := v.live(t, port)
	v.set(t, port, v.far.Host)
	for _, l := range flows {
		received := l.flow.Result().Received
		testutil.WaitFor(t, soon, "the UDP flow to go on with a backend that is allowed", func() bool {
			return l.flow.Result().Received > received+20
		})
	}
	v.set(t, port, v.bad.Host)
	for _, l := range flows {
		testutil.WaitFor(t, soon, "the UDP flow to end at a backend that is denied", func() bool { return l.flow.Result().LongestGap > aGap })
	}
	for _, l := range flows {
		sent := l.flow.Result()
		testutil.WaitFor(t, soon, "more datagrams", func() bool { return l.flow.Result().Sent > sent.Sent+20 })
		if now := l.flow.StopCut(); now.Received > sent.Received {
			t.Errorf("the backend that is denied answers: %d, then %d answers", sent.Received, now.Received)
		}
		l.stream.Stop()
	}
}

// D-24: a Service is not the node, although IPVS has its address on it.
func TestIPVSServicesAreNotTheNode(t *testing.T) {
	v := newVirtual(t, "--default-endpoint-to-host-action", "Drop")
	for _, h := range []*lab.Host{v.good.Host, v.far.Host, v.client.Host} {
		v.through(t, h, true)
	}
	v.through(t, v.Node(0).Host, false)
	v.Reach(v.client.Host, v.Node(0).Host, 80, false)
}
