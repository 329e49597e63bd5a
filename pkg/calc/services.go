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
		t.release(key)
		sizes[named{key.Namespace, key.Name}] = 0
		if now != nil {
			sizes[named{key.Namespace, key.Name}] = len(now.External)
		}
	}
	for _, o := range t.external.change(sizes) {
		key := model.ServiceKey{Namespace: o.namespace, Name: o.name}
		if t.external.isOut(o.namespace, o.name) {
			t.exclude(key)
		} else {
			t.include(key)
		}
	}
	for key, now := range changed {
		was := t.services[key]
		delete(t.services, key)
		if now != nil {
			t.services[key] = now
			t.hold(key)
		}
		t.sets.replaceAddrs(model.SetServiceAddrs, before[key], t.translated(key))
		t.replaceReserved(clusterOf(was), clusterOf(now))
	}
}

// isOut reports whether the external addresses of a Service are left out.
func (t *serviceTable) isOut(key model.ServiceKey) bool {
	_, full := t.sets.room.services[key]
	return full || t.external.isOut(key.Namespace, key.Name)
}

// hold counts the external addresses of a Service that are not past the limit of its namespace, if there is room.
func (t *serviceTable) hold(key model.ServiceKey) {
	switch n := len(t.services[key].External); {
	case t.external.isOut(key.Namespace, key.Name):
	case t.sets.room.has(key.Namespace, n):
		t.sets.room.spend(key.Namespace, n)
	default:
		t.sets.room.services[key] = struct{}{}
	}
}

// release gives the room of a Service back, which may not exist.
func (t *serviceTable) release(key model.ServiceKey) {
	if s := t.services[key]; s != nil && !t.isOut(key) {
		t.sets.room.spend(key.Namespace, -len(s.External))
	}
	delete(t.sets.room.services, key)
}

// include counts in the external addresses of a Service that were past the limit of its namespace, and exclude counts out those that are so now.
func (t *serviceTable) include(key model.ServiceKey) {
	if t.hold(key); !t.isOut(key) {
		t.sets.replaceAddrs(model.SetServiceAddrs, nil, t.services[key].External)
	}
}

func (t *serviceTable) exclude(key model.ServiceKey) {
	if _, full := t.sets.room.services[key]; full {
		delete(t.sets.room.services, key)
		return
	}
	all := t.services[key].External
	t.sets.room.spend(key.Namespace, -len(all))
	t.sets.replaceAddrs(model.SetServiceAddrs, all, nil)
}

// admitServices counts in those for which there is room now.
func (t *serviceTable) admitServices() {
	if !t.sets.room.freed {
		return
	}
	for key := range t.sets.room.services {
		if t.sets.room.has(key.Namespace, len(t.services[key].External)) {
			delete(t.sets.room.services, key)
			t.include(key)
		}
	}
}

// translated are the addresses of a Service that egress is not judged by before kube-proxy has translated it. An external
// one that is left out is judged twice: as it is, and as its backend.
func (t *serviceTable) translated(key model.ServiceKey) []netip.Addr {
	switch s := t.services[key]; {
	case s == nil:
		return nil
	case t.isOut(key):
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
