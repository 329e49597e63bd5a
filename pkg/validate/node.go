package validate

import (
	"maps"
	"net/netip"

	"github.com/margay-project/margay/pkg/model"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Node returns a node with its internal and external addresses and its labels. Host names and DNS names are no
// addresses.
func Node(n *corev1.Node) (model.NodeUpdate, []Problem, bool) {
	rep := Report{ref: Ref{Kind: "Node", Name: n.Name}}
	node := &model.Node{Labels: maps.Clone(n.Labels)}
	var addrs distinct[netip.Addr]
	path := field.NewPath("status", "addresses")
	for i, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP {
			rep.addAddr(&addrs, path.Index(i).Child("address").String(), a.Address)
		}
	}
	node.Addrs = addrs.list
	return model.NodeUpdate{Name: n.Name, Node: node}, rep.Done(), true
}
