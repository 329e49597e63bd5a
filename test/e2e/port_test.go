package e2e

import (
	"net"
	"strings"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
)

// Another program of the node has the port of the probes when the agent starts, so the kubelet has the answers of that one. Policy is enforced
// all the same. The agent says so once, with what to do, and has the port when it is free.
func TestAgentEnforcesWhileAnotherHasItsPort(t *testing.T) {
	const address = "127.0.0.1:9096"
	c := newCluster(t, oneNode, "--health-address", address)
	client, server, a := c.Pod(c.Node(0), "client"), c.Pod(c.Node(0), "server"), c.Agent(0)
	c.AwaitEndpoint(server)
	a.Kill()
	var other net.Listener
	if err := c.Node(0).Do(func() (err error) {
		other, err = net.Listen("tcp", address)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	_, before := a.Warnings(t, 0)
	a.Start()
	c.Policy("server", onlyOpen)
	c.AwaitPolicies(server, 1, 0)
	c.Serve(server.Host, closedPort)
	c.Reach(client.Host, server.Host, closedPort, false)
	testutil.WaitFor(t, soon, "the agent to say that it cannot serve", func() bool {
		lines, _ := a.Warnings(t, before)
		return strings.Count(strings.Join(lines, "\n"), "another program has the port") == 1
	})
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	testutil.WaitFor(t, soon, "the agent to have the port", func() bool {
		return c.Node(0).Do(func() error {
			conn, err := net.Dial("tcp", address)
			if err == nil {
				err = conn.Close()
			}
			return err
		}) == nil
	})
}
