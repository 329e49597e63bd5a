package cluster

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/validate"
)

// The groups of Calico's kinds, of which the agent prefers the first.
const (
	calicoV3  = "projectcalico.org/v3"
	calicoCRD = "crd.projectcalico.org/v1"
)

// calicoKinds are Calico's policies and what these refer to: all kinds of its groups that an agent follows in a cluster but
// for its configuration.
func calicoKinds() []kinds.Kind {
	return slices.DeleteFunc(kinds.Served(validate.Pods{}), func(k kinds.Kind) bool {
		return k.Name == felix || !slices.ContainsFunc(k.Versions, func(gv schema.GroupVersion) bool { return gv.String() == calicoV3 })
	})
}

// calicoDefinition is the CRD of a kind in one of Calico's groups, with a schema that leaves everything to the agent.
func calicoDefinition(k kinds.Kind, group string) string {
	name, version, _ := strings.Cut(group, "/")
	scope := "Cluster"
	if k.Namespaced {
		scope = "Namespaced"
	}
	return fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]s.%[2]s}
spec:
  group: %[2]s
  scope: %[3]s
  names: {kind: %[4]s, listKind: %[4]sList, plural: %[1]s, singular: %[5]s}
  versions:
  - name: %[6]s
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
`, k.Resource, name, scope, k.Name, strings.ToLower(k.Name), version)
}

// installCalicoKind has the API server serve a kind, and waits until every agent follows it.
func (c *cluster) installCalicoKind(k kinds.Kind, group string) {
	c.t.Helper()
	c.apply(calicoDefinition(k, group))
	c.awaitKindEverywhere(k.Ref, "synced")
}

// removeCalicoKind removes a kind with its objects, and waits until no agent follows it.
func (c *cluster) removeCalicoKind(k kinds.Kind, group string) {
	c.t.Helper()
	c.deleteKind(calicoDefinition(k, group))
	c.awaitKindEverywhere(k.Ref, "absent")
}

// awaitKindEverywhere waits until the kind is in the state for all agents.
func (c *cluster) awaitKindEverywhere(ref, state string) {
	c.t.Helper()
	for _, n := range c.nodes {
		if n.agent != nil && n.agent.running != nil {
			n.agent.awaitKind(ref, state)
		}
	}
}

// installCalicoKinds installs all of them in the group. From then on settle is about them, too.
func (c *cluster) installCalicoKinds(group string) {
	c.t.Helper()
	var all strings.Builder
	for _, k := range calicoKinds() {
		all.WriteString(calicoDefinition(k, group))
	}
	c.apply(all.String())
	for _, k := range calicoKinds() {
		c.awaitKindEverywhere(k.Ref, "synced")
	}
	c.calicoGroup = group
}

// removeCalicoKinds removes them all, which settle is not about any more.
func (c *cluster) removeCalicoKinds(group string) {
	c.t.Helper()
	for _, k := range calicoKinds() {
		c.delete(calicoDefinition(k, group))
	}
	for _, k := range calicoKinds() {
		c.removeCalicoKind(k, group)
	}
	c.calicoGroup = ""
}

// calico is an object of one of Calico's kinds, in a namespace unless that is empty; labels and spec are in YAML's flow style.
func calico(group, kind, namespace, name, labels, spec string) string {
	if namespace != "" {
		namespace = ", namespace: " + namespace
	}
	return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: %s%s, labels: %s}\nspec: %s\n---\n", group, kind, name, namespace, labels, spec)
}

// settleCalico changes one object of each of Calico's kinds that are enforced, so that settled agents show the round.
func (c *cluster) settleCalico(round int) {
	c.t.Helper()
	group, label := c.calicoGroup, fmt.Sprintf("{global: global-%d-x, own: own-%[1]d-x}", round)
	rule := func(label string) string {
		return fmt.Sprintf("[{action: Pass, source: {selector: %[1]s == '%[1]s-%[2]d-x'}}]", label, round)
	}
	c.applySoon(calico(group, "GlobalNetworkSet", "", settleNamespace, label, "{nets: [192.0.2.250/32]}") +
		calico(group, "NetworkSet", settleNamespace, "round", label, "{nets: [192.0.2.251/32]}") +
		calico(group, "NetworkPolicy", settleNamespace, settleNamespace+".round", "{}", fmt.Sprintf("{tier: %s, types: [Ingress], ingress: %s}", settleNamespace, rule("own"))) +
		calico(group, "GlobalNetworkPolicy", "", settleNamespace+".round", "{}", fmt.Sprintf(
			"{tier: %[1]s, namespaceSelector: projectcalico.org/name == '%[1]s', types: [Ingress], ingress: %[2]s}", settleNamespace, rule("global"))) +
		calico(group, "Tier", "", settleNamespace, "{}", fmt.Sprintf("{order: %d, defaultAction: Pass}", 1000+round)))
}

// hasCalicoRound reports whether the agent enforces the objects of settleCalico.
func (a *agent) hasCalicoRound(round, pods int) bool {
	answer, err := a.ask("policies")
	if err != nil {
		return false
	}
	tier := 0
	for _, p := range answer.Policies {
		if p.Tier == settleNamespace && p.TierOrder != nil && *p.TierOrder == float64(1000+round) {
			tier++
		}
	}
	return tier == 2 && a.hasRound(fmt.Sprintf("own-%d-x", round), pods+1) && a.hasRound(fmt.Sprintf("global-%d-x", round), pods+2)
}
