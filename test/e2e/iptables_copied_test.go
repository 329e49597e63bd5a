package e2e

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// Somebody restores the agent's chains with the commands of the other backend. Packets have to pass both, and the copy judges by the policy
// of that moment. The agent finds it at the next full comparison and removes it, and leaves its sets and chains of others alone. So does an
// agent that starts.
func TestChainsCopiedToTheOtherBackend(t *testing.T) {
	testutil.RequireCommand(t, "iptables-legacy-restore")
	testutil.RequireCommand(t, "iptables-nft-restore")
	forBackends(t, func(t *testing.T, flags ...string) {
		own := flags[len(flags)-1]
		other := map[string]string{"legacy": "nft", "nft": "legacy"}[own]
		c := newCluster(t, oneNode, append(flags, "--resync-every", "2s")...)
		server, client := c.Pod(c.Node(0), "server"), c.Pod(c.Node(0), "client")
		c.Policy("server", onlyOpen)
		c.AwaitPolicies(server, 1, 0)
		c.Serve(server.Host, openPort)
		toggle, err := echo.ListenTCP(server.Host, togglePort)
		if err != nil {
			t.Fatal(err)
		}
		run := func(input, command string, args ...string) string {
			out, err := c.Node(0).Run(t.Context(), input, command, args...)
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		copied := func() {
			saved := "*filter\n:theirs - [0:0]\nCOMMIT\n"
			for _, table := range []string{"raw", "mangle", "filter"} {
				saved += run("", "iptables-"+own+"-save", "-t", table)
			}
			run(saved, "iptables-"+other+"-restore", "--noflush")
		}
		_, logged := c.Agent(0).Warnings(t, 0)
		copied()
		text, status := verify(t, c.Agent(0))
		lines, _ := c.Agent(0).Warnings(t, logged) // a comparison may have come before
		if reported := status != 0 && strings.Contains(text, "backend "+other); !reported && !strings.Contains(strings.Join(lines, ""), "backend "+other) {
			t.Errorf("verify ends with %d:\n%s", status, text)
		}
		c.Policy("toggle", `{podSelector: {matchLabels: {app: server}}, ingress: [{ports: [{port: 82}]}]}`)
		c.AwaitPolicies(server, 2, 0)
		testutil.WaitFor(t, soon, "a connection that policy allows now", func() bool {
			return echo.DialTCP(client.Host, netip.AddrPortFrom(server.Addr4(), toggle.Addr4().Port()), never).Outcome == echo.Connected
		})
		testutil.WaitFor(t, soon, "the agent to say what it has removed", func() bool {
			lines, _ := c.Agent(0).Warnings(t, logged)
			return strings.Contains(strings.Join(lines, ""), "backend "+other)
		})
		removed := func(what string) {
			awaitProven(t, c.Agent(0), 2, what)
			if left := run("", "iptables-"+other+"-save"); strings.Contains(left, "mgy") || !strings.Contains(left, ":theirs") {
				t.Errorf("%s: of the copy there is\n%s", what, left)
			}
		}
		removed("by the agent that runs")
		c.Agent(0).Kill()
		copied()
		c.Agent(0).Start()
		removed("by one that starts")
		if lines, _ := c.Agent(0).Warnings(t, 0); strings.Contains(strings.Join(lines, ""), "not fully enforced") {
			t.Errorf("the agent says:\n%s", strings.Join(lines, ""))
		}
		c.Reach(client.Host, server.Host, openPort, true)
		c.Reach(client.Host, server.Host, closedPort, false)
	})
}
