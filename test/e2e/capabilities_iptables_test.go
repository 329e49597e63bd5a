package e2e

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/margay-project/margay/internal/testcluster"
)

// iptablesCapabilities are those of an agent that enforces with iptables and comes after no other dataplane.
var iptablesCapabilities = []corev1.Capability{"NET_ADMIN", "NET_RAW"}

// confinedIPTables is an agent that enforces with iptables, in a root with iptables and few capabilities.
func confinedIPTables(t *testing.T, backend string, has []corev1.Capability) (*cluster, *testcluster.Process) {
	t.Helper()
	c, agent := confinedCluster(t, has)
	agent.Flags = append(agent.Flags, "--dataplane", "iptables", "--iptables-backend", backend)
	agent.Adjust = func(cmd *exec.Cmd) {
		confined(t, cmd, has, []string{c.Dir, "/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc/alternatives", "/proc"}, append(writes(agent), "/run"))
	}
	return c, agent
}

// TestTheIPTablesDataplaneNeedsTwoCapabilities: with them it enforces and takes over, without either it ends with a line that names it.
func TestTheIPTablesDataplaneNeedsTwoCapabilities(t *testing.T) {
	for _, backend := range []string{"legacy", "nft"} {
		t.Run(backend, func(t *testing.T) {
			c, agent := confinedIPTables(t, backend, iptablesCapabilities)
			agent.Start()
			n := c.Node(0)
			client, server := c.Pod(n, "client"), c.Pod(n, "server")
			c.Serve(server.Host, 80)
			c.Policy("server", onlyOpen)
			c.AwaitPolicies(server, 1, 0)
			c.Reach(client.Host, server.Host, 80, true)
			c.Reach(client.Host, server.Host, 81, false)
			agent.Kill()
			agent.Start()
			c.Reach(client.Host, server.Host, 80, true)
			c.Reach(client.Host, server.Host, 81, false)
		})
	}
	for i, without := range iptablesCapabilities {
		t.Run("without "+string(without), func(t *testing.T) {
			_, agent := confinedIPTables(t, "legacy", slices.Delete(slices.Clone(iptablesCapabilities), i, i+1))
			if line := refused(t, agent); !strings.Contains(line, "does not have CAP_"+string(without)) {
				t.Errorf("want one line that says CAP_%s is missing", without)
			}
		})
	}
}
