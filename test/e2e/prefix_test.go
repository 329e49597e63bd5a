package e2e

import (
	"strings"
	"testing"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/attach"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/lab"
)

// attached is the number of links that the agent's instance has on the interface of a pod.
func attached(t *testing.T, a *testcluster.Process, p *lab.Pod) (links int) {
	t.Helper()
	list, err := attach.ListPinned(a.Maps().LinkDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range list {
		if int(l.Ifindex) != p.IfIndex() {
			continue
		}
		for _, s := range []attach.LinkState{l.Ingress, l.Egress} {
			if s.Attached {
				links++
			}
		}
	}
	return links
}

// An agent with a prefix that is not its node's closes interfaces which are none of its business. The one after it, with the right prefix, opens
// them.
func TestInterfacesClosedUnderAWrongPrefixOpenOnceItIsCorrected(t *testing.T) {
	testcluster.NeedsBPF(t, "programs on an interface stay there")
	c := newCluster(t, oneNode)
	agent := c.Agent(0)
	left, right := c.Plug(c.Node(0), "left"), c.Plug(c.Node(0), "right")
	c.Serve(right.Host, openPort)
	testutil.WaitFor(t, soon, "programs on both interfaces", func() bool {
		return attached(t, agent, left) == 2 && attached(t, agent, right) == 2
	})
	c.Reach(left.Host, right.Host, openPort, false)
	agent.Terminate()
	agent.Flags = append(agent.Flags, "--interface-prefix", "veth")
	agent.Start()
	for _, p := range []*lab.Pod{left, right} {
		if n := attached(t, agent, p); n != 0 {
			t.Errorf("%d programs are left on the interface of %s", n, p.Name())
		}
	}
	c.Reach(left.Host, right.Host, openPort, true)
	if lines, _ := agent.Warnings(t, 0); !strings.Contains(strings.Join(lines, "\n"), "opened interfaces") {
		t.Errorf("the log does not say it: %q", lines)
	}
}

// An agent that is started with a wrong prefix changes nothing about pods that are enforced: neither are they opened, nor do they lose what policy
// allows. It says what is wrong, and the one after it goes on.
func TestAWrongPrefixLeavesEnforcedPodsAsTheyAre(t *testing.T) {
	c := newCluster(t, oneNode)
	agent := c.Agent(0)
	client, server := c.Pod(c.Node(0), "client"), c.Pod(c.Node(0), "server")
	c.Policy("server", onlyOpen)
	c.AwaitPolicies(server, 1, 0)
	c.Serve(server.Host, openPort)
	c.Serve(server.Host, closedPort)
	asItWas := func() {
		t.Helper()
		c.Reach(client.Host, server.Host, openPort, true)
		c.Reach(client.Host, server.Host, closedPort, false)
		if testcluster.IPTables() {
			return // there are no programs on interfaces
		}
		for _, p := range []*lab.Pod{client, server} {
			if n := attached(t, agent, p); n != 2 {
				t.Errorf("%d programs are on the interface of %s", n, p.Name())
			}
		}
	}
	asItWas()
	flags := agent.Flags
	for range 2 { // the second agent finds what the first one has made of it
		agent.Terminate()
		agent.Flags = append(flags[:len(flags):len(flags)], "--interface-prefix", "veth")
		agent.Launch()
		var status *inspect.StatusReport
		testutil.WaitFor(t, 2*soon, "the agent to say what is wrong", func() bool {
			a, err := agent.Ask("status")
			if err != nil || a.Status == nil {
				return false
			}
			status = a.Status
			return strings.Contains(status.Error, `with another prefix than "veth"`) && strings.Contains(status.Error, "cali")
		})
		if status.Ready || status.InSync {
			t.Errorf("the agent is ready %t, in sync %t", status.Ready, status.InSync)
		}
		asItWas()
	}
	late := c.Plug(c.Node(0), "late")
	c.Declare(late)
	c.Reach(late.Host, server.Host, openPort, false)
	agent.Terminate()
	agent.Flags = flags
	agent.Start()
	c.AwaitPolicies(server, 1, 0)
	asItWas()
	c.AwaitEndpoint(late)
	c.Reach(late.Host, server.Host, openPort, true)
	c.Reach(late.Host, server.Host, closedPort, false)
}

// The agent before may have had the other dataplane. What that one enforces stays, too.
func TestAWrongPrefixLeavesPodsOfTheOtherDataplaneAsTheyAre(t *testing.T) {
	for _, order := range [][2]string{{"iptables", "bpf"}, {"bpf", "iptables"}} {
		t.Run(order[0], func(t *testing.T) {
			c := newCluster(t, oneNode, "--dataplane", order[0])
			agent := c.Agent(0)
			client, server := c.Pod(c.Node(0), "client"), c.Pod(c.Node(0), "server")
			c.Policy("server", onlyOpen)
			c.AwaitPolicies(server, 1, 0)
			c.Serve(server.Host, openPort)
			c.Serve(server.Host, closedPort)
			flags := agent.Flags
			agent.Terminate()
			agent.Flags = append(flags[:len(flags):len(flags)], "--dataplane", order[1], "--interface-prefix", "veth")
			agent.Launch()
			testutil.WaitFor(t, 2*soon, "the agent to say what is wrong", func() bool {
				a, err := agent.Ask("status")
				return err == nil && a.Status != nil && strings.Contains(a.Status.Error, `with another prefix than "veth"`)
			})
			c.Reach(client.Host, server.Host, openPort, true)
			c.Reach(client.Host, server.Host, closedPort, false)
			agent.Terminate()
			agent.Flags = append(flags[:len(flags):len(flags)], "--dataplane", order[1])
			agent.Start()
			c.AwaitPolicies(server, 1, 0)
			c.Reach(client.Host, server.Host, openPort, true)
			c.Reach(client.Host, server.Host, closedPort, false)
		})
	}
}
