package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/margay-project/margay/pkg/lab"
)

const clusterPolicyKind = "ClusterNetworkPolicy"

// clusterPolicyCRD is the CRD as its module has it, with its experimental fields.
var clusterPolicyCRD = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-json", "sigs.k8s.io/network-policy-api").Output()
	if err != nil {
		return "", fmt.Errorf("find the module of ClusterNetworkPolicy: %w", err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(module.Dir, "config/crd/experimental/policy.networking.k8s.io_clusternetworkpolicies.yaml"))
	return string(text), err
})

// clusterPolicy is a ClusterNetworkPolicy; spec is in YAML's flow style.
func clusterPolicy(name, spec string) string {
	return fmt.Sprintf("apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\nmetadata: {name: %s}\nspec: %s\n", name, spec)
}

// installClusterPolicies has the API server serve ClusterNetworkPolicies, and waits until every agent follows them. From
// then on settle is about them, too.
func (c *cluster) installClusterPolicies() {
	c.t.Helper()
	crd, err := clusterPolicyCRD()
	c.must(err)
	c.apply(crd)
	for _, n := range c.nodes {
		if n.agent != nil && n.agent.running != nil {
			n.agent.awaitKind(clusterPolicyKind, "synced")
		}
	}
	c.clusterPolicies = true
}

// ClusterNetworkPolicies on a cluster that gets their CRD while agents run, loses it and gets it again: both tiers, over
// both families, directly and through a Service, on one node and across.
func TestClusterNetworkPolicyComesAndGoes(t *testing.T) {
	c := newCluster(t, options{flags: []string{"--discovery-every", "1s"}})
	c.namespace("shop", "team: shop")
	c.namespace("ops", "team: ops")
	agents := []*agent{c.nodes[0].agent, c.nodes[1].agent}
	client, stranger := c.pod("shop", "client", "n1"), c.pod("ops", "stranger", "n1")
	near, far := c.pod("shop", "near", "n1", "app: web"), c.pod("shop", "far", "n2", "app: web")
	web := c.service("shop", "web", "app: web")
	c.awaitService(client.Host, web, 80)
	c.awaitService(stranger.Host, web, 80)
	check := func(clientMay, strangerMay bool) {
		c.t.Helper()
		for _, to := range []struct {
			from *lab.Pod
			want bool
		}{{client, clientMay}, {stranger, strangerMay}} {
			c.awaitReach(to.from.Host, append(near.Addrs(), far.Addrs()...), 80, to.want)
			c.reach(to.from.Host, near.Host, 80, to.want)
			c.reach(to.from.Host, far.Host, 80, to.want)
			c.reachService(to.from.Host, web, 80, to.want)
		}
	}
	c.step("absent", func() {
		for _, a := range agents {
			c.contains("why the kind is absent", a.awaitKind(clusterPolicyKind, "absent").Error, "does not serve clusternetworkpolicies of policy.networking.k8s.io/v1alpha2")
		}
		check(true, true)
	})
	c.step("appears", c.installClusterPolicies)
	c.step("tier Baseline", func() {
		c.applySoon(clusterPolicy("default", `{tier: Baseline, priority: 10, subject: {namespaces: {}}, ingress: [{name: closed, action: Deny, from: [{namespaces: {}}]}]}`))
		check(false, false)
		c.policy("shop", "web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {}}]}]}`)
		check(true, false)
	})
	c.step("tier Admin", func() {
		c.apply(clusterPolicy("guard", `{tier: Admin, priority: 20, subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}},
  ingress: [{name: ops-only, action: Deny, from: [{namespaces: {matchLabels: {team: shop}}}]}, {name: ops, action: Accept, from: [{namespaces: {matchLabels: {team: ops}}}],
  protocols: [{tcp: {destinationPort: {number: 80}}}, {udp: {destinationPort: {range: {start: 79, end: 81}}}}]}]}`))
		check(false, true)
		for _, n := range c.nodes {
			c.contains("margay explain", n.agent.tool("explain", "ops/stranger", "shop/near:80"), "by ClusterNetworkPolicy guard ingress[1] \"ops\" in tier kube-admin (Admin)")
		}
		c.apply(clusterPolicy("egress", `{tier: Admin, priority: 1, subject: {namespaces: {matchLabels: {team: ops}}}, egress: [{action: Deny, to: [{namespaces: {matchLabels: {team: shop}}}]}]}`))
		check(false, false)
		c.delete(clusterPolicy("egress", "{}"))
		check(false, true)
	})
	crd, err := clusterPolicyCRD()
	c.must(err)
	c.step("vanishes", func() {
		c.deleteKind(crd)
		c.clusterPolicies = false
		for _, a := range agents {
			a.awaitKind(clusterPolicyKind, "absent")
		}
		check(true, false) // by the NetworkPolicy, which nothing has disturbed
		policies, err := c.client.NetworkingV1().NetworkPolicies("shop").List(c.t.Context(), metav1.ListOptions{})
		if err != nil || len(policies.Items) != 1 {
			c.t.Errorf("%v, %v", policies, err)
		}
	})
	c.step("comes back", func() {
		c.installClusterPolicies()
		c.applySoon(clusterPolicy("guard", `{tier: Admin, priority: 20, subject: {namespaces: {}}, ingress: [{action: Accept, from: [{namespaces: {matchLabels: {team: ops}}}]}]}`))
		check(true, true)
		c.settle()
	})
	if err := c.plane.Err(); err != nil {
		t.Error(err)
	}
}
