package e2e

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
)

const (
	openPort, closedPort = testcluster.OpenPort, testcluster.ClosedPort
	onlyOpen             = testcluster.OnlyOpen
)

// forModes runs a test with and without the same-node shortcut.
func forModes(t *testing.T, test func(t *testing.T, flags ...string)) {
	t.Run("shortcut", func(t *testing.T) { test(t) })
	t.Run("stack", func(t *testing.T) { test(t, "--no-shortcut") })
}

func TestAgentKilledAndRestartedUnderTraffic(t *testing.T) {
	forModes(t, func(t *testing.T, flags ...string) {
		c := newCluster(t, oneNode, flags...)
		client, server := c.Pod(c.Node(0), "client"), c.Pod(c.Node(0), "server")
		c.Policy("server", onlyOpen)
		c.AwaitPolicies(server, 1, 0)
		tr := c.StartTraffic(client, server)
		for i := range 3 {
			c.Agent(0).Kill()
			tr.Some(fmt.Sprintf("without an agent, round %d", i))
			c.Agent(0).Start()
			c.AwaitPolicies(server, 1, 0)
			tr.Some(fmt.Sprintf("after a restart, round %d", i))
		}
		c.Agent(0).Terminate()
		tr.Some("after the agent has ended well")
		tr.Stop()
	})
}

// The same between two nodes, through Services, with egress policy that has to wait for their translation.
func TestAgentsKilledUnderTrafficThroughServices(t *testing.T) {
	testutil.RequireCommand(t, "iptables-restore")
	c := newCluster(t, []string{"a", "b"})
	client, server := c.Pod(c.Node(0), "client"), c.Pod(c.Node(1), "server")
	// The agent has to know which addresses are a Service's.
	c.Write("service-server", `apiVersion: v1
kind: Service
metadata: {name: server, namespace: shop}
spec: {clusterIP: 10.96.0.7, clusterIPs: [10.96.0.7, "fd96::7"], ports: [{port: 80}]}
`)
	c.Policy("server", onlyOpen)
	c.Policy("client", `{podSelector: {matchLabels: {app: client}}, policyTypes: [Egress], egress: [{
  to: [{podSelector: {matchLabels: {app: server}}}]}]}`)
	c.AwaitPolicies(server, 1, 0)
	c.AwaitPolicies(client, 0, 1)
	tr := c.StartTraffic(client, server, netip.MustParseAddr("10.96.0.7"), netip.MustParseAddr("fd96::7"))
	for i := range 4 {
		one := c.Agent(i % 2)
		one.Kill()
		tr.Some(fmt.Sprintf("without an agent, round %d", i))
		one.Start()
		tr.Some(fmt.Sprintf("after a restart, round %d", i))
	}
	tr.Stop()
}

// The agent is killed after ever longer moments of starting, so at many points of its restart.
func TestAgentKilledWhileItStarts(t *testing.T) {
	c := newCluster(t, oneNode)
	client, server := c.Pod(c.Node(0), "client"), c.Pod(c.Node(0), "server")
	c.Policy("server", onlyOpen)
	c.AwaitPolicies(server, 1, 0)
	tr := c.StartTraffic(client, server)
	for i := range 12 {
		c.Agent(0).Kill()
		c.Agent(0).Launch()
		moment := time.NewTimer(time.Duration(i) * 15 * time.Millisecond)
		<-moment.C
	}
	c.Agent(0).Kill()
	tr.Some("between the agents")
	c.Agent(0).Start()
	c.AwaitPolicies(server, 1, 0)
	tr.Some("after the last start")
	tr.Stop()
}

// Policy changes all the time, never about what the traffic is judged by (quality P10, in small).
func TestPolicyChangesUnderTraffic(t *testing.T) {
	forModes(t, func(t *testing.T, flags ...string) {
		c := newCluster(t, oneNode, flags...)
		client, server := c.Pod(c.Node(0), "client"), c.Pod(c.Node(0), "server")
		member := c.Pod(c.Node(0), "member")
		c.Policy("server", onlyOpen)
		c.AwaitPolicies(server, 1, 0)
		tr := c.StartTraffic(client, server)
		for i := range 40 {
			// Another rule in the server's table, and a member that comes and goes in the sets it uses.
			c.Policy("more", fmt.Sprintf(`{podSelector: {matchLabels: {app: server}}, ingress: [{
  from: [{podSelector: {matchLabels: {role: x%d}}}], ports: [{port: %d}]}]}`, i%3, 1000+i))
			c.Declare(member, fmt.Sprintf("role: x%d", i%2))
			if i%10 == 9 {
				c.Remove("policy-more")
				c.AwaitPolicies(server, 1, 0)
			}
			tr.Some(fmt.Sprintf("after change %d", i))
		}
		tr.Stop()
	})
}

// Pods come and go beside the traffic, also under a name that was there before.
func TestPodChurnUnderTraffic(t *testing.T) {
	c := newCluster(t, oneNode)
	client, server := c.Pod(c.Node(0), "client"), c.Pod(c.Node(0), "server")
	c.Policy("server", onlyOpen)
	c.AwaitPolicies(server, 1, 0)
	tr := c.StartTraffic(client, server)
	for i := range 8 {
		p := c.Pod(c.Node(0), "churn")
		c.Serve(p.Host, 80)
		c.Reach(client.Host, p.Host, 80, true)
		if err := c.Node(0).DelPod(p); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 { // otherwise the datastore still knows it when the next one comes
			c.Remove("pod-churn")
		}
	}
	tr.Some("after the churn")
	tr.Stop()
}
