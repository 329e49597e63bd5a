package e2e

import (
	"strings"
	"testing"

	"github.com/margay-project/margay/internal/testcluster"
)

// A second agent that would enforce with iptables in one network namespace ends with a line that says so, whatever its name.
func TestOneAgentEnforcesWithIPTablesInANamespace(t *testing.T) {
	forBackends(t, func(t *testing.T, flags ...string) {
		c := newCluster(t, oneNode, flags...)
		second := testcluster.NewProcess(t, c.Node(0), c.Dir, append(flags, "--instance", "second")...)
		if line := refused(t, second); !strings.Contains(line, "another agent enforces with iptables in this network namespace") {
			t.Error(line)
		}
		// One with BPF would remove the first one's chains, which that one would write again.
		for _, dataplane := range []string{"bpf", "auto"} {
			successor := testcluster.NewProcess(t, c.Node(0), c.Dir, append(flags, "--dataplane", dataplane)...)
			line := refused(t, successor)
			if !strings.Contains(line, "another agent enforces with iptables in this network namespace: stop it first") {
				t.Errorf("%s: %s", dataplane, line)
			}
		}
		if a, err := c.Agent(0).Ask("status"); err != nil || !a.Status.Ready {
			t.Errorf("the first one: %+v, %v", a, err)
		}
	})
}
