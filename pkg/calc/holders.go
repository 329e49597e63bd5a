package calc

import (
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// Holder names the object that has an address, for people. One of the fields is set.
type Holder struct {
	Endpoint model.EndpointID // the endpoint of any node that owns the address
	Service  model.ServiceKey // the Service whose cluster address it is; others, which its owner may choose, name nothing
	Node     string           // a node whose address it is
}

// Holds reports whether h has the address, as of the last Flush. It is quick.
func (g *Graph) Holds(h Holder, a netip.Addr) bool {
	switch {
	case h.Node != "":
		return slices.Contains(g.nodes[h.Node], a)
	case h.Service != model.ServiceKey{}:
		s := g.services[h.Service]
		return s != nil && slices.Contains(s.Cluster, a)
	}
	ep := g.endpoints.Get(h.Endpoint)
	return ep != nil && ep.Value.hasAddr(a)
}

// MayBeHeld reports whether something has the address, as of the last Flush. It is quick, and sometimes wrong if nothing
// has it.
func (g *Graph) MayBeHeld(a netip.Addr) bool {
	return g.owners.known[g.owners.key(a)] > 0 || g.owners.isReserved(a)
}

// Holders returns the holders of the addresses, as of the last Flush. Addresses without a holder are left out. It reads
// every endpoint, Service and node, once for all addresses.
func (g *Graph) Holders(addrs []netip.Addr) map[netip.Addr]Holder {
	found := map[netip.Addr]Holder{}
	wanted := map[netip.Addr]bool{}
	v4, v6 := map[[4]byte]bool{}, map[[16]byte]bool{} // the same, as endpoints have them: of these there may be very many
	for _, a := range addrs {
		if wanted[a] = true; a.Is4() {
			v4[a.As4()] = true
		} else {
			v6[a.As16()] = true
		}
	}
	for key, s := range g.services {
		for _, a := range s.Cluster {
			if wanted[a] {
				found[a] = Holder{Service: key}
			}
		}
	}
	for name, list := range g.nodes {
		for _, a := range list {
			if wanted[a] {
				found[a] = Holder{Node: name}
			}
		}
	}
	for ep := range g.endpoints.All() {
		switch {
		case ep.Value.shape == unpacked:
		case ep.Value.shape != only6 && ep.Value.shape != noAddr && v4[ep.Value.v4]:
		case ep.Value.shape != only4 && ep.Value.shape != noAddr && len(v6) > 0 && v6[ep.Value.v6]:
		default:
			continue
		}
		for a := range ep.Value.addrs() {
			if wanted[a] {
				found[a] = Holder{Endpoint: ep.id()}
			}
		}
	}
	return found
}
