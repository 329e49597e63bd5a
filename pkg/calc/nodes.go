package calc

import (
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// nodeSets fills the sets of definitions by node: the addresses of the nodes that a selector selects.
type nodeSets struct {
	nodes   map[string]*model.Node
	defined map[*definition]struct{}
	sets    *setTable
}

func newNodeSets(sets *setTable) *nodeSets {
	return &nodeSets{nodes: map[string]*model.Node{}, defined: map[*definition]struct{}{}, sets: sets}
}

// define finds the members of a new definition.
func (x *nodeSets) define(d *definition, sel *selector.Selector) {
	d.nodes = sel
	x.defined[d] = struct{}{}
	for _, n := range x.nodes {
		d.weight += 1 + len(n.Addrs)
		x.count(d, n, 1)
	}
}

func (x *nodeSets) undefine(d *definition) { delete(x.defined, d) }

// update replaces one node; nil removes it.
func (x *nodeSets) update(name string, now *model.Node) {
	was := x.nodes[name]
	delete(x.nodes, name)
	if now != nil {
		x.nodes[name] = now
	}
	for d := range x.defined {
		x.count(d, now, 1)
		x.count(d, was, -1)
	}
}

// count counts the addresses of a node, if there is one and the definition selects it, into or out of its set.
func (x *nodeSets) count(d *definition, n *model.Node, delta int32) {
	if n == nil || !d.nodes.Matches(selector.Map(n.Labels)) {
		return
	}
	for _, a := range n.Addrs {
		if p, ok := hostPrefix(a); ok {
			x.sets.count(d.sets[portKey{}], p, delta)
		}
	}
}
