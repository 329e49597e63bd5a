package e2e

import (
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/margay-project/margay/pkg/lab"
)

// renamed gives the interface of a pod on its node the prefix eni, as another CNI plugin would.
func renamed(t *testing.T, c *cluster, p *lab.Pod) {
	t.Helper()
	err := c.Node(0).Do(func() error {
		link, err := netlink.LinkByIndex(p.IfIndex())
		if err != nil {
			return err
		}
		return netlink.LinkSetName(link, "eni"+strings.TrimPrefix(link.Attrs().Name, "cali"))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A prefix that only a FelixConfiguration names is not known when the agent opens its dataplane: each start begins with the built-in one. The pods
// stay enforced, and none of their packets is lost.
func TestAPrefixOfAFelixConfigurationSurvivesARestart(t *testing.T) {
	c := newCluster(t, oneNode)
	agent := c.Agent(0)
	c.Write("felix", "apiVersion: projectcalico.org/v3\nkind: FelixConfiguration\nmetadata: {name: default}\nspec: {interfacePrefix: eni}\n")
	client, server := c.Plug(c.Node(0), "client"), c.Plug(c.Node(0), "server")
	renamed(t, c, client)
	renamed(t, c, server)
	c.Declare(client)
	c.Declare(server)
	c.Policy("server", onlyOpen)
	c.AwaitPolicies(server, 1, 0)
	tr := c.StartTraffic(client, server)
	for _, end := range []func(){agent.Kill, agent.Terminate} {
		end()
		agent.Start()
		c.AwaitPolicies(server, 1, 0)
		tr.Some("after a restart")
	}
	tr.Stop()
}
