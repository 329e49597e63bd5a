package calc

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"

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

// HostOf returns the node in whose network a pod is that is no endpoint; empty: there is no such pod.
func (t *endpointTable) HostOf(pod model.EndpointID) (node string) {
	if n, ok := t.hosted[pod]; ok {
		return t.nodeNames.names[n]
	}
	return ""
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

// ServicesByAddr returns the Services for which kube-proxy translates the address: of those with it as a cluster address, and of those
// with it as an external one, which may be somebody's own address, too. Each sorted. It looks at every Service.
func (t *serviceTable) ServicesByAddr(addr netip.Addr) (cluster, external []model.ServiceKey) {
	for key, s := range t.services {
		if slices.Contains(s.Cluster, addr) {
			cluster = append(cluster, key)
		} else if slices.Contains(s.External, addr) {
			external = append(external, key)
		}
	}
	byName := func(a, b model.ServiceKey) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	}
	slices.SortFunc(cluster, byName)
	slices.SortFunc(external, byName)
	return cluster, external
}

// IsOfService reports whether a set holds backends of a Service, as a rule that names the Service refers to them.
func (t *serviceTable) IsOfService(id model.SetID) bool {
	s, ok := t.sets.byID[id]
	return ok && s.definition != nil && slices.Contains(kindsByService, s.definition.key.kind)
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

// AllNodeAddrs are the addresses of all nodes, by name, in no order.
func (t *serviceTable) AllNodeAddrs() iter.Seq2[string, []netip.Addr] { return maps.All(t.nodes) }

// NodeByAddr returns the node that has the address, of several the first by name; empty: none has. It looks at every node.
func (t *serviceTable) NodeByAddr(addr netip.Addr) (node string) {
	for name, addrs := range t.nodes {
		if (node == "" || name < node) && slices.Contains(addrs, addr) {
			node = name
		}
	}
	return node
}
