package e2e

import (
	"path/filepath"
	"testing"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/pkg/bpfmaps"
)

// An agent whose maps have another layout takes over under traffic, and the former one after it again: what policy
// allows goes on, what it denies never passes, and nothing is left of the layout that is not used.
func TestAnAgentWithAnotherMapLayoutTakesOverUnderTraffic(t *testing.T) {
	testcluster.NeedsBPF(t, "there are no maps")
	c := newCluster(t, oneNode)
	next := testcluster.NextLayout(t)
	client, server := c.Pod(c.Node(0), "client"), c.Pod(c.Node(0), "server")
	c.Policy("server", onlyOpen)
	c.AwaitPolicies(server, 1, 0)
	a := c.Agent(0)
	tr := c.StartTraffic(client, server)
	for i, binary := range []string{next, "", next} {
		a.Kill()
		a.Binary = binary
		a.Start()
		tr.Some("after the agent was replaced")
		c.Reach(client.Host, server.Host, 81, false)
		layouts, err := filepath.Glob(filepath.Join(a.BPFFS, "margay", "v*"))
		if err != nil || len(layouts) != 1 {
			t.Errorf("after %d takeovers there are the layouts %v (%v), want one", i+1, layouts, err)
		}
		if others, err := bpfmaps.OtherLayouts(a.BPFFS, ""); (len(others) == 1) != (binary != "") || err != nil {
			t.Errorf("after %d takeovers there are other layouts than this tree's: %v (%v)", i+1, others, err)
		}
	}
	tr.Stop()
}
