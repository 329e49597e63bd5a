package cluster

import "testing"

// What an agent is for, on a cluster: policies, labels and namespaces take effect and stop to, directly and through
// Services, on one node and across, in both of kube-proxy's modes, over both families.
func TestPolicyTakesEffect(t *testing.T) {
	for _, mode := range []string{"iptables", "nftables"} {
		t.Run(mode, func(t *testing.T) {
			c := newCluster(t, options{proxy: mode})
			c.namespace("shop", "team: shop")
			c.namespace("other", "team: other")
			client, stranger := c.pod("shop", "client", "n1"), c.pod("other", "stranger", "n1")
			near, far := c.pod("shop", "near", "n1", "app: web"), c.pod("shop", "far", "n2", "app: web")
			web := c.service("shop", "web", "app: web")
			c.awaitService(client.Host, web, 80)
			c.awaitService(stranger.Host, web, 80)
			c.reach(client.Host, far.Host, 0, true)

			c.policy("shop", "web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}`)
			c.awaitPolicies(near, 1, 0)
			c.awaitPolicies(far, 1, 0)
			for _, to := range []*struct{ allowed bool }{{true}, {false}} {
				from := client.Host
				if !to.allowed {
					from = stranger.Host
				}
				c.reach(from, near.Host, 80, to.allowed)
				c.reach(from, far.Host, 80, to.allowed)
				c.reachService(from, web, 80, to.allowed)
			}
			c.reach(c.nodes[0].Host, near.Host, 80, true) // its own node is never kept out
			c.reach(c.nodes[0].Host, far.Host, 80, false)

			c.labelPod("shop", "client", `{"app":"idle"}`)
			both := append(near.Addrs(), far.Addrs()...) // each has an agent of its own
			c.awaitReach(client.Host, both, 80, false)
			c.reachService(client.Host, web, 80, false)
			c.labelPod("shop", "client", `{"app":"client"}`)
			c.awaitReach(client.Host, both, 80, true)

			c.policy("shop", "web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: other}}}]}]}`)
			c.awaitReach(stranger.Host, both, 80, true)
			c.reachService(stranger.Host, web, 80, true)
			c.reach(client.Host, near.Host, 80, false)
			c.namespace("other", "team: gone")
			c.awaitReach(stranger.Host, both, 80, false)
			c.reachService(stranger.Host, web, 80, false)

			c.deletePolicy("shop", "web")
			c.awaitReach(stranger.Host, both, 80, true)
			c.reach(client.Host, near.Host, 80, true)
			c.reachService(client.Host, web, 80, true)
		})
	}
}
