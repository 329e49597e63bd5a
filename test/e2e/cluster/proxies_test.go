package cluster

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/model"
)

// setProxies makes the kube-proxies run in the mode, and waits until the rules of iptables mode are gone if it is another.
func (c *cluster) setProxies(mode string) {
	c.t.Helper()
	if mode == c.options.proxy || c.options.proxy == "" && mode == "iptables" {
		return
	}
	c.options.proxy = mode
	for _, n := range c.nodes {
		n.proxy.Kill()
		var err error
		n.proxy, err = c.plane.StartKubeProxy(n.Node, mode, c.options.podRanges...)
		c.must(err)
	}
	if mode == "iptables" {
		return
	}
	for _, n := range c.nodes {
		testutil.WaitFor(c.t, soon, "kube-proxy on "+n.Name()+" to take the rules of its other mode away", func() bool {
			left, err := n.Run(c.t.Context(), "", "iptables-save", "-t", "nat")
			return err == nil && !strings.Contains(left, "KUBE-SEP")
		})
	}
}

// awaitKnown waits until all agents know the addresses of all Services.
func (c *cluster) awaitKnown() {
	c.t.Helper()
	all, err := c.client.CoreV1().Services(corev1.NamespaceAll).List(c.t.Context(), metav1.ListOptions{})
	c.must(err)
	want := 0
	for i := range all.Items {
		want += len(clusterIPs(&all.Items[i])) + len(all.Items[i].Spec.ExternalIPs)
	}
	for _, n := range c.nodes {
		testutil.WaitFor(c.t, soon, fmt.Sprintf("the agent on %s to know %d addresses of Services", n.Name(), want), func() bool {
			answer, err := n.agent.ask("sets")
			return err == nil && slices.ContainsFunc(answer.Sets, func(r inspect.SetRow) bool {
				return r.ID == string(model.SetServiceAddrs) && r.Members == want
			})
		})
	}
}
