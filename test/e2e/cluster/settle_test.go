package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/inspect"
)

// settleNamespace has a pod on each node that no test is about.
const settleNamespace = "margay-settle"

// settle waits until all agents enforce everything that was said before of namespaces, pods and policies. Objects
// of one kind reach an agent in order, so it changes one of each kind and waits until they have come together: a policy
// of each kind that selects pods and a namespace by a label of this round.
func (c *cluster) settle() {
	c.t.Helper()
	if c.rounds == 0 {
		c.namespace(settleNamespace)
		for _, n := range c.nodes {
			c.apply(podSpec{node: n.Name()}.manifest(settleNamespace, n.Name()))
		}
		for _, n := range c.nodes {
			c.awaitRunning(settleNamespace, n.Name())
		}
	}
	c.rounds++
	round := fmt.Sprintf("round-%d", c.rounds)
	for _, n := range c.nodes {
		c.labelPod(settleNamespace, n.Name(), fmt.Sprintf(`{"round":%q,"cluster-round":%[1]q,"own":"own-%d-x","global":"global-%[2]d-x"}`, round, c.rounds))
	}
	c.apply(fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s, labels: {round: %s}}\n", settleNamespace, round))
	c.policy(settleNamespace, "round", fmt.Sprintf(`{podSelector: {}, ingress: [{from: [{
  namespaceSelector: {matchLabels: {round: %[1]s}}, podSelector: {matchLabels: {round: %[1]s}}}]}]}`, round))
	if c.clusterPolicies {
		c.apply(clusterPolicy("margay-settle", fmt.Sprintf(`{tier: Admin, priority: 1000, subject: {namespaces: {matchLabels: {round: %[1]s}}},
  ingress: [{action: Pass, from: [{pods: {podSelector: {matchLabels: {cluster-round: %[1]s}}}}]}]}`, round)))
	}
	if c.calicoGroup != "" {
		c.settleCalico(c.rounds)
	}
	for _, n := range c.nodes {
		if n.agent == nil || n.agent.running == nil {
			continue
		}
		what := fmt.Sprintf("the agent on %s to enforce what was said before %s", n.Name(), round)
		testutil.WaitFor(c.t, soon, what, func() bool {
			return n.agent.hasRound("pods round="+round+" in ", 2*len(c.nodes)) &&
				(!c.clusterPolicies || n.agent.hasRound("cluster-round="+round, 2*len(c.nodes))) &&
				(c.calicoGroup == "" || n.agent.hasCalicoRound(c.rounds, 2*len(c.nodes)))
		})
	}
}

// hasRound reports whether a rule in the kernel uses the set whose name has the text, and all its members are known.
func (a *agent) hasRound(text string, members int) bool {
	answer, err := a.ask("sets")
	if err != nil {
		return false
	}
	there := slices.ContainsFunc(answer.Sets, func(s inspect.SetRow) bool {
		return s.Number != 0 && s.Members == members && strings.Contains(s.Text, text)
	})
	if !there {
		return false
	}
	status, err := a.ask("status")
	return err == nil && status.Status.Error == "" && time.Since(status.Status.Applied) < time.Minute
}
