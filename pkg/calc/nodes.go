package calc

import (
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// byNodes makes the definition of the addresses of the nodes that the selector selects.
func (x *setIndex) byNodes(key definitionKey, sel *selector.Selector) *definition {
	d := x.define(key)
	d.nodes = sel
	x.ofNodes[d] = struct{}{}
	for _, n := range x.nodes {
		d.weight += 1 + len(n.Addrs)
		x.countNode(d, n, 1)
	}
	return d
}

// updateNode replaces one node; nil removes it.
func (x *setIndex) updateNode(name string, now *model.Node) {
	was := x.nodes[name]
	delete(x.nodes, name)
	if now != nil {
		x.nodes[name] = now
	}
	for d := range x.ofNodes {
		x.countNode(d, now, 1)
		x.countNode(d, was, -1)
	}
}

// countNode counts the addresses of a node, if there is one and the definition selects it, into or out of its set.
func (x *setIndex) countNode(d *definition, n *model.Node, delta int32) {
	if n == nil || !d.nodes.Matches(selector.Map(n.Labels)) {
		return
	}
	for _, a := range n.Addrs {
		if p, ok := hostPrefix(a); ok {
			x.count(d.sets[portKey{}], p, delta)
		}
	}
}
