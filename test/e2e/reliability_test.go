package e2e

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/lab"
	"github.com/margay-project/margay/internal/testutil"
)

// traffic runs while something is done to the agent: old flows and new ones that policy allows, and new ones that it
// denies. From one client to one server, over both families.
type traffic struct {
	t       *testing.T
	streams []*lab.Stream
	flows   []*lab.UDPFlow
	prober  *lab.Prober
	denied  *lab.Server
}

const (
	openPort, closedPort = 80, 81
	onlyOpen             = `{podSelector: {matchLabels: {app: server}}, ingress: [{ports: [{port: 80}, {port: 80, protocol: UDP}]}]}`
)

// startTraffic needs the policy onlyOpen in force at the server. With vips, of one address per family, it goes through
// Services on the client's node.
func (c *cluster) startTraffic(client, server *lab.Pod, vips ...netip.Addr) *traffic {
	c.t.Helper()
	tcp, udp := c.serve(server.Host, openPort)
	denied, _ := c.serve(server.Host, closedPort)
	tr := &traffic{t: c.t, denied: denied}
	to := func(s *lab.Server, protocol string, v6 bool) netip.AddrPort {
		backend := netip.AddrPortFrom(server.Addr(v6), s.Port())
		for _, vip := range vips {
			if vip.Is6() != v6 {
				continue
			}
			front := netip.AddrPortFrom(vip, s.Port())
			service := lab.Service{Addr: front, Protocol: protocol, Backends: []netip.AddrPort{backend}}
			if err := client.Node().SetService(service); err != nil {
				c.t.Fatal(err)
			}
			return front
		}
		return backend
	}
	var targets []lab.Target
	for _, v6 := range []bool{false, true} {
		open, closed, datagrams := to(tcp, "tcp", v6), to(denied, "tcp", v6), to(udp, "udp", v6)
		s, err := client.StartStream(open, lab.StreamOptions{Interval: 2 * time.Millisecond})
		if err != nil {
			c.t.Fatal(err)
		}
		f, err := client.StartUDPFlow(datagrams, lab.UDPFlowOptions{})
		if err != nil {
			c.t.Fatal(err)
		}
		tr.streams, tr.flows = append(tr.streams, s), append(tr.flows, f)
		targets = append(targets, lab.Target{Addr: open, Allowed: true}, lab.Target{Addr: closed})
	}
	p, err := client.StartProber(lab.ProberOptions{Interval: 5 * time.Millisecond}, targets...)
	if err != nil {
		c.t.Fatal(err)
	}
	tr.prober = p
	tr.some("at first")
	return tr
}

// some waits until every probe has got on.
func (tr *traffic) some(what string) {
	tr.t.Helper()
	attempts, received := make([]uint64, 4), make([]uint64, 4)
	for i, r := range tr.prober.Results() {
		attempts[i] = r.Attempts
	}
	for i := range tr.streams {
		received[2*i], received[2*i+1] = tr.streams[i].Result().Received, tr.flows[i].Result().Received
	}
	testutil.WaitFor(tr.t, soon, "traffic "+what, func() bool {
		for i, r := range tr.prober.Results() {
			if r.Attempts < attempts[i]+5 {
				return false
			}
		}
		for i := range tr.streams {
			if tr.streams[i].Result().Received < received[2*i]+10 || tr.flows[i].Result().Received < received[2*i+1]+10 {
				return false
			}
		}
		return true
	})
}

// stop demands that nothing was lost, cut or misjudged.
func (tr *traffic) stop() {
	tr.t.Helper()
	for i, s := range tr.streams {
		if r := s.Stop(); r.Sent != r.Received || r.Connects != 1 || r.Errors != 0 {
			tr.t.Errorf("stream %d: %+v", i, r)
		}
	}
	for i, f := range tr.flows {
		if r := f.Stop(); r.Lost != 0 || r.Duplicated != 0 || r.Refused != 0 || r.SendErrors != 0 {
			tr.t.Errorf("UDP flow %d: %+v", i, r)
		}
	}
	for _, r := range tr.prober.Stop() {
		if r.Wrong != 0 {
			tr.t.Errorf("%d of %d attempts at %s wrong (allowed: %v), outcomes %v, first %+v", r.Wrong, r.Attempts,
				r.Target.Addr, r.Target.Allowed, r.Outcomes, r.FirstWrong)
		}
	}
	if n := tr.denied.Accepted(); n != 0 {
		tr.t.Errorf("the denied port accepted %d connections", n)
	}
}

// forModes runs a test with and without the same-node shortcut.
func forModes(t *testing.T, test func(t *testing.T, flags ...string)) {
	t.Run("shortcut", func(t *testing.T) { test(t) })
	t.Run("stack", func(t *testing.T) { test(t, "--no-shortcut") })
}

func TestAgentKilledAndRestartedUnderTraffic(t *testing.T) {
	forModes(t, func(t *testing.T, flags ...string) {
		c := newCluster(t, oneNode, flags...)
		client, server := c.pod(c.node(0), "client"), c.pod(c.node(0), "server")
		c.policy("server", onlyOpen)
		c.awaitPolicies(server, 1, 0)
		tr := c.startTraffic(client, server)
		for i := range 3 {
			c.agent(0).kill()
			tr.some(fmt.Sprintf("without an agent, round %d", i))
			c.agent(0).start()
			c.awaitPolicies(server, 1, 0)
			tr.some(fmt.Sprintf("after a restart, round %d", i))
		}
		c.agent(0).terminate()
		tr.some("after the agent has ended well")
		tr.stop()
	})
}

// The same between two nodes, through Services, with egress policy that has to wait for their translation.
func TestAgentsKilledUnderTrafficThroughServices(t *testing.T) {
	testutil.RequireCommand(t, "iptables-restore")
	c := newCluster(t, []string{"a", "b"})
	client, server := c.pod(c.node(0), "client"), c.pod(c.node(1), "server")
	// The agent has to know which addresses are a Service's.
	c.write("service-server", `apiVersion: v1
kind: Service
metadata: {name: server, namespace: shop}
spec: {clusterIP: 10.96.0.7, clusterIPs: [10.96.0.7, "fd96::7"], ports: [{port: 80}]}
`)
	c.policy("server", onlyOpen)
	c.policy("client", `{podSelector: {matchLabels: {app: client}}, policyTypes: [Egress], egress: [{
  to: [{podSelector: {matchLabels: {app: server}}}]}]}`)
	c.awaitPolicies(server, 1, 0)
	c.awaitPolicies(client, 0, 1)
	tr := c.startTraffic(client, server, netip.MustParseAddr("10.96.0.7"), netip.MustParseAddr("fd96::7"))
	for i := range 4 {
		one := c.agent(i % 2)
		one.kill()
		tr.some(fmt.Sprintf("without an agent, round %d", i))
		one.start()
		tr.some(fmt.Sprintf("after a restart, round %d", i))
	}
	tr.stop()
}

// The agent is killed after ever longer moments of starting, so at many points of its restart.
func TestAgentKilledWhileItStarts(t *testing.T) {
	c := newCluster(t, oneNode)
	client, server := c.pod(c.node(0), "client"), c.pod(c.node(0), "server")
	c.policy("server", onlyOpen)
	c.awaitPolicies(server, 1, 0)
	tr := c.startTraffic(client, server)
	for i := range 12 {
		c.agent(0).kill()
		c.agent(0).launch()
		moment := time.NewTimer(time.Duration(i) * 15 * time.Millisecond)
		<-moment.C
	}
	c.agent(0).kill()
	tr.some("between the agents")
	c.agent(0).start()
	c.awaitPolicies(server, 1, 0)
	tr.some("after the last start")
	tr.stop()
}

// Policy changes all the time, never about what the traffic is judged by (quality P10, in small).
func TestPolicyChangesUnderTraffic(t *testing.T) {
	forModes(t, func(t *testing.T, flags ...string) {
		c := newCluster(t, oneNode, flags...)
		client, server := c.pod(c.node(0), "client"), c.pod(c.node(0), "server")
		member := c.pod(c.node(0), "member")
		c.policy("server", onlyOpen)
		c.awaitPolicies(server, 1, 0)
		tr := c.startTraffic(client, server)
		for i := range 40 {
			// Another rule in the server's table, and a member that comes and goes in the sets it uses.
			c.policy("more", fmt.Sprintf(`{podSelector: {matchLabels: {app: server}}, ingress: [{
  from: [{podSelector: {matchLabels: {role: x%d}}}], ports: [{port: %d}]}]}`, i%3, 1000+i))
			c.declare(member, fmt.Sprintf("role: x%d", i%2))
			if i%10 == 9 {
				c.remove("policy-more")
				c.awaitPolicies(server, 1, 0)
			}
			tr.some(fmt.Sprintf("after change %d", i))
		}
		tr.stop()
	})
}

// Pods come and go beside the traffic, also under a name that was there before.
func TestPodChurnUnderTraffic(t *testing.T) {
	c := newCluster(t, oneNode)
	client, server := c.pod(c.node(0), "client"), c.pod(c.node(0), "server")
	c.policy("server", onlyOpen)
	c.awaitPolicies(server, 1, 0)
	tr := c.startTraffic(client, server)
	for i := range 8 {
		p := c.pod(c.node(0), "churn")
		c.serve(p.Host, 80)
		c.reach(client.Host, p.Host, 80, true)
		if err := c.node(0).DelPod(p); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 { // otherwise the datastore still knows it when the next one comes
			c.remove("pod-churn")
		}
	}
	tr.some("after the churn")
	tr.stop()
}
