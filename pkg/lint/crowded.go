package lint

import (
	"maps"
	"slices"

	"github.com/margay-project/margay/pkg/compile/plan"
	"github.com/margay-project/margay/pkg/model"
)

// perNode has the limits of a namespace's pods on one node, and of all pods there. Bytes of tables are not among them: they are known once
// tables are in a kernel.
var perNode = plan.Budget{Namespace: plan.PerNamespace, Node: plan.PerNode, Assured: plan.Assured}

// crowded finds pods whose policy their node refuses for want of room: together with that of other pods there it is past a limit. Most clusters
// would be within the limits if all pods were on one node, so no node is looked at. all is their policy compiled as if they were.
func (l *linter) crowded(all *plan.Compiler, o plan.Options) {
	namespaces, node := perNode.Past(all)
	if len(namespaces) == 0 && !node {
		return
	}
	known := all.Failed()
	o.Budget.Namespace, o.Budget.Node, o.Budget.Assured = perNode.Namespace, perNode.Node, perNode.Assured
	for _, node := range l.nodesOf(func(namespace string) bool { return node || slices.Contains(namespaces, namespace) }) {
		c := plan.New(o, nil)
		changes := l.changes
		changes.Endpoints = map[model.EndpointID]*model.EndpointPolicy{}
		for id, ep := range l.changes.Endpoints {
			if pod := l.endpoints[id]; pod != nil && pod.Node == node {
				changes.Endpoints[id] = ep
			}
		}
		for p := c.Update(changes); p.More; p = c.Update(model.Changes{}) {
		}
		failed := c.Failed()
		maps.DeleteFunc(failed, func(at plan.EndpointDirection, _ error) bool { return known[at] != nil })
		l.noteRefused(failed, " on node "+node)
		c.Close()
	}
}

// nodesOf returns the nodes of the pods of some namespaces, sorted.
func (l *linter) nodesOf(is func(namespace string) bool) []string {
	names := map[string]bool{}
	for id, pod := range l.endpoints {
		if is(id.Namespace) {
			names[pod.Node] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}
