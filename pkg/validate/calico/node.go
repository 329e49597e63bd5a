package calico

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
)

// Node is a host as Calico knows it. How it announces routes and makes tunnels is no concern of policy.
type Node struct {
	Object
	Spec NodeSpec `json:"spec"`
}

// NodeSpec is the spec of a Node, as far as it says addresses.
type NodeSpec struct {
	Addresses []NodeAddress `json:"addresses,omitempty"`
	BGP       *NodeBGP      `json:"bgp,omitempty"`
}

// NodeAddress is an address, with or without a mask.
type NodeAddress struct {
	Address string `json:"address"`
	Type    string `json:"type,omitempty"` // InternalIP, ExternalIP or CalicoNodeIP
}

// NodeBGP has the addresses that the node announces routes with, each with or without a mask.
type NodeBGP struct {
	IPv4Address string `json:"ipv4Address,omitempty"`
	IPv6Address string `json:"ipv6Address,omitempty"`
}

// ConvertNode returns a Node with its addresses and labels.
func ConvertNode(o *Node) (model.NodeUpdate, []validate.Problem, bool) {
	rep := validate.NewReport(validate.Ref{Kind: "Node.projectcalico.org", Name: o.Name})
	node := &model.Node{Labels: maps.Clone(o.Labels)}
	add := func(field, text string) {
		address, _, _ := strings.Cut(text, "/")
		a, err := netip.ParseAddr(address)
		switch {
		case text == "":
		case err != nil || a.Zone() != "":
			rep.Add(validate.Warning, field, "%q is not an address; ignored", text)
		case !slices.Contains(node.Addrs, a.Unmap()):
			node.Addrs = append(node.Addrs, a.Unmap())
		}
	}
	if len(o.Spec.Addresses) > maxAddrs {
		rep.Add(validate.Rejected, "spec.addresses", "has %d entries; the limit is %d", len(o.Spec.Addresses), maxAddrs)
	} else {
		for i, a := range o.Spec.Addresses {
			add(element("spec.addresses", i)+".address", a.Address)
		}
	}
	if b := o.Spec.BGP; b != nil {
		add("spec.bgp.ipv4Address", b.IPv4Address)
		add("spec.bgp.ipv6Address", b.IPv6Address)
	}
	return model.NodeUpdate{Name: o.Name, Node: node}, rep.Done(), rep.OK()
}
