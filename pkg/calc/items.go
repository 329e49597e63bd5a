package calc

import (
	"iter"
	"net/netip"

	"github.com/margay-project/margay/pkg/labelindex"
	"github.com/margay-project/margay/pkg/model"
)

// The index of the cluster has every endpoint and network set, and the selectors that rules refer to. That of the node has
// the endpoints of this node, and the selectors of policies.
type (
	clusterIndex    = labelindex.Index[contents, findings]
	item            = labelindex.Item[contents, findings]
	group           = labelindex.Group[contents, findings]
	selection       = labelindex.Selection[contents, findings]
	nodeIndex       = labelindex.Index[model.EndpointID, subjects]
	localItem       = labelindex.Item[model.EndpointID, subjects]
	localGroup      = labelindex.Group[model.EndpointID, subjects]
	policySelection = labelindex.Selection[model.EndpointID, subjects]
)

// findings are what rules refer to of what a selector selects in the cluster.
type findings struct {
	addrs *definition              // the set of their addresses
	ports map[string][]*definition // their named ports, by name
}

func (f *findings) isEmpty() bool { return f.addrs == nil && len(f.ports) == 0 }

// subjects are the policies that apply to what a selector selects on this node.
type subjects struct {
	policies []*policy
	active   bool // it matched anything when the policies were last looked at
}

// contents is what an item of the cluster contributes to sets: an endpoint or a network set. It is replaced, never changed,
// when its object changes. There may be very many, so what most of them lack is elsewhere.
type contents struct {
	extra *extra
	addrList
}

// extra is what few items have.
type extra struct {
	addrs  []netip.Addr   // of an endpoint with other than one address, or one of each family
	nets   []netip.Prefix // of a network set
	iface  string         // of an endpoint of this node
	claims []netip.Addr   // of a particular endpoint: all addresses it claims; addrList has those it owns

	particular  bool // an endpoint that is one of the following, or may not own what it claims
	terminating bool
	unconfirmed bool
}

// more returns the item's extra, which it makes if there is none.
func (it *contents) more() *extra {
	if it.extra == nil {
		it.extra = &extra{}
	}
	return it.extra
}

// prefixes are the addresses the item contributes to the sets it is in.
func (it *contents) prefixes() iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) {
		for a := range it.addrs() {
			if p, ok := hostPrefix(a); ok && !yield(p) {
				return
			}
		}
		if it.extra == nil {
			return
		}
		for _, n := range it.extra.nets {
			if n.IsValid() && !yield(n.Masked()) {
				return
			}
		}
	}
}

// hostPrefix is the /32 or /128 of an address; not ok for the zero address.
func hostPrefix(a netip.Addr) (netip.Prefix, bool) {
	return netip.PrefixFrom(a, a.BitLen()), a.IsValid()
}
