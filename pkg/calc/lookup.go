package calc

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// The functions below find objects by the names people use, as of the last Flush. Their results are shared and must not be
// changed.

// EndpointIDs are all endpoints, of every node, in no order.
func (t *endpointTable) EndpointIDs() iter.Seq[model.EndpointID] {
	return func(yield func(model.EndpointID) bool) {
		for ep := range t.endpoints.All() {
			if !yield(ep.id()) {
				return
			}
		}
	}
}

// Services are all Services, in no order.
func (t *serviceTable) Services() iter.Seq2[model.ServiceKey, *model.Service] {
	return maps.All(t.services)
}

// FindService returns a Service; not ok if there is none.
func (t *serviceTable) FindService(key model.ServiceKey) (*model.Service, bool) {
	s, ok := t.services[key]
	return s, ok
}

// ServiceByAddr returns the Service that kube-proxy translates the address for. It looks at every Service.
func (t *serviceTable) ServiceByAddr(addr netip.Addr) (model.ServiceKey, bool) {
	for key, s := range t.services {
		if slices.Contains(s.Cluster, addr) || slices.Contains(s.External, addr) {
			return key, true
		}
	}
	return model.ServiceKey{}, false
}

// Slices are the EndpointSlices of a Service, in no order.
func (g *Graph) Slices(key model.ServiceKey) []*model.EndpointSlice {
	var list []*model.EndpointSlice
	for _, s := range g.sets.services.backends.of[key] {
		list = append(list, s.EndpointSlice)
	}
	return list
}

// NodeAddrs are the addresses of a node; not ok if there is no such node.
func (t *serviceTable) NodeAddrs(name string) ([]netip.Addr, bool) {
	addrs, ok := t.nodes[name]
	return addrs, ok
}

// NodeByAddr returns the node that has the address; empty: none has. It looks at every node.
func (t *serviceTable) NodeByAddr(addr netip.Addr) string {
	for name, addrs := range t.nodes {
		if slices.Contains(addrs, addr) {
			return name
		}
	}
	return ""
}
