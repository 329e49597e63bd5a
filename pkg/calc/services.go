package calc

import (
	"net/netip"

	"github.com/margay-project/margay/pkg/model"
)

// serviceTable has the Services and nodes of the cluster, whose addresses no endpoint can own.
type serviceTable struct {
	here     string // this node
	services map[model.ServiceKey]*model.Service
	external allotment // external addresses that the Services of one namespace may have
	nodes    map[string][]netip.Addr
	addrs    *owners   // which are to know of these addresses
	sets     *setIndex // the reserved sets
}

func newServiceTable(here string, addrs *owners, sets *setIndex) *serviceTable {
	return &serviceTable{here: here, services: map[model.ServiceKey]*model.Service{}, external: newAllotment(MaxExternal),
		nodes: map[string][]netip.Addr{}, addrs: addrs, sets: sets}
}

// updateServices replaces Services; nil removes one. It has those, too, counted in or out for whose external addresses there is room now,
// or none any more.
func (t *serviceTable) updateServices(changed map[model.ServiceKey]*model.Service) {
	before, sizes := make(map[model.ServiceKey][]netip.Addr, len(changed)), make(map[named]int, len(changed))
	for key, now := range changed {
		before[key] = t.translated(key)
		sizes[named{key.Namespace, key.Name}] = 0
		if now != nil {
			sizes[named{key.Namespace, key.Name}] = len(now.External)
		}
	}
	for _, o := range t.external.change(sizes) {
		if all := t.services[model.ServiceKey{Namespace: o.namespace, Name: o.name}].External; t.external.isOut(o.namespace, o.name) {
			t.sets.replaceAddrs(model.SetServiceAddrs, all, nil)
		} else {
			t.sets.replaceAddrs(model.SetServiceAddrs, nil, all)
		}
	}
	for key, now := range changed {
		was := t.services[key]
		delete(t.services, key)
		if now != nil {
			t.services[key] = now
		}
		t.sets.replaceAddrs(model.SetServiceAddrs, before[key], t.translated(key))
		t.replaceReserved(clusterOf(was), clusterOf(now))
	}
}

// translated are the addresses of a Service that egress is not judged by before kube-proxy has translated it. An external
// one that is left out is judged twice: as it is, and as its backend.
func (t *serviceTable) translated(key model.ServiceKey) []netip.Addr {
	switch s := t.services[key]; {
	case s == nil:
		return nil
	case t.external.isOut(key.Namespace, key.Name):
		return s.Cluster
	default:
		return s.Addrs()
	}
}

func clusterOf(s *model.Service) []netip.Addr {
	if s == nil {
		return nil
	}
	return s.Cluster
}

// updateReserved keeps the sets that no rule refers to.
func (t *serviceTable) updateReserved(services map[model.ServiceKey]*model.Service, nodes map[string]*model.Node) {
	t.updateServices(services)
	for name, now := range nodes {
		before := t.nodes[name]
		delete(t.nodes, name)
		if now != nil {
			t.nodes[name] = now.Addrs
		}
		t.sets.nodes.update(name, now)
		t.replaceReserved(before, t.nodes[name])
		if name == t.here {
			t.sets.replaceAddrs(model.SetNodeAddrs, before, t.nodes[name])
		}
	}
}

// replaceReserved replaces one object's contribution to the addresses that no endpoint can own.
func (t *serviceTable) replaceReserved(was, now []netip.Addr) {
	for _, a := range now {
		t.reserve(a, 1)
	}
	for _, a := range was {
		t.reserve(a, -1)
	}
}

func (t *serviceTable) reserve(a netip.Addr, delta int32) {
	was := t.addrs.isReserved(a)
	t.addrs.reserve(a, delta)
	if now := t.addrs.isReserved(a); now != was {
		t.sets.owned.count(a, delta)
	}
}
