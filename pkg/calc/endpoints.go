package calc

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/keyset"
	"github.com/margay-project/margay/pkg/model"
)

// endpointTable has the endpoints of the cluster, and decides whose addresses and interfaces are.
type endpointTable struct {
	node      string // whose graph it is; empty: every endpoint is local
	endpoints keyset.Set[model.EndpointID, endpoint]
	unknown   map[model.EndpointID]string     // endpoints of kinds that are not calculated, and the nodes they are on
	hosted    map[model.EndpointID]nodeNumber // pods that are no endpoints, since they are in the network of that node
	owners    *owners                         // of their addresses
	nodeNames *nodeNames
	sets      *setIndex // which their addresses join
}

func newEndpointTable(node string, sets *setIndex) *endpointTable {
	return &endpointTable{node: node, endpoints: keyset.New((*endpoint).id), unknown: map[model.EndpointID]string{},
		hosted: map[model.EndpointID]nodeNumber{},
		owners: newOwners(), nodeNames: newNodeNames(), sets: sets}
}

// update replaces endpoints, nil ones are removed, and gives addresses to their owners. It returns those that may be enforced
// from now on, or otherwise than before, or no more, and those whose turn is with a later flush.
func (t *endpointTable) update(updates map[model.EndpointID]*model.Endpoint, turns *turns) (affected map[model.EndpointID]struct{}, later map[model.EndpointID]*model.Endpoint) {
	affected = map[model.EndpointID]struct{}{}
	var contested map[model.EndpointID]*model.Endpoint // to be replaced once the addresses they own are decided
	for id, now := range updates {
		if id.Kind != model.WorkloadEndpoint {
			t.setAside(id, now)
			continue
		}
		was := t.endpoints.Get(id)
		if was == nil && now == nil || was != nil && now != nil && t.same(was, now) {
			continue
		}
		if now != nil && !turns.has(id.Namespace) && (was == nil || t.keepsAddrs(was, now)) {
			put(&later, id, now)
			continue
		}
		if was != nil {
			for a := range t.claims(was) {
				t.owners.leave(id, a)
			}
		}
		t.claimInterface(id, was, now, affected)
		if now == nil || !t.joinOwners(id, now) {
			turns.spend(id.Namespace, func() { t.replaceEndpoint(id, now, affected) })
		} else {
			put(&contested, id, now)
		}
	}
	for id := range t.decideOwners(contested) {
		if contested[id] == nil {
			put(&contested, id, t.value(t.endpoints.Get(id)))
		}
	}
	for id, now := range contested {
		t.replaceEndpoint(id, now, affected)
	}
	return affected, later
}

// keepsAddrs reports whether an endpoint that changes claims the addresses that it has claimed. Others may have those that it gives up.
func (t *endpointTable) keepsAddrs(was *endpoint, now *model.Endpoint) bool {
	return slices.Equal(slices.Collect(t.claims(was)), t.claimed(now))
}

// setAside remembers an endpoint of a kind that is not calculated, to report it; nil removes it.
func (t *endpointTable) setAside(id model.EndpointID, now *model.Endpoint) {
	delete(t.unknown, id)
	if now != nil {
		t.unknown[id] = now.Node
	}
}

// updateHosted remembers, of endpoints that are updated, those that are pods in the network of a host.
func (t *endpointTable) updateHosted(updates map[model.EndpointID]*model.Endpoint, hosts map[model.EndpointID]string) {
	for id := range updates {
		was, is := t.hosted[id]
		if host := hosts[id]; host != "" {
			t.hosted[id] = t.nodeNames.hold(host)
		} else {
			delete(t.hosted, id)
		}
		if is {
			t.nodeNames.drop(was)
		}
	}
}

// joinOwners makes an endpoint claim its addresses and reports whether any is contested.
func (t *endpointTable) joinOwners(id model.EndpointID, now *model.Endpoint) bool {
	contested := false
	c := t.claimOf(id, now)
	for _, a := range t.claimed(now) {
		contested = t.owners.join(c, a) || contested
	}
	return contested
}

// claimed are the addresses that an endpoint is heard about: what an annotation says counts on its own node only.
func (t *endpointTable) claimed(ep *model.Endpoint) []netip.Addr {
	if ep.Unconfirmed && !t.isLocal(ep.Node) {
		return nil
	}
	return ep.Addrs
}

func (t *endpointTable) claimOf(id model.EndpointID, ep *model.Endpoint) claim {
	c := claim{id: id, created: ep.Created, terminating: ep.Terminating}
	if t.node != "" && ep.Node == t.node {
		c.local, c.iface = true, ep.Iface
	}
	return c
}

// claims are the addresses that a stored endpoint is heard about.
func (t *endpointTable) claims(ep *endpoint) iter.Seq[netip.Addr] {
	if ep.isUnconfirmed() && !t.isLocal(t.nodeNames.names[ep.node]) {
		return func(func(netip.Addr) bool) {}
	}
	return ep.claimed()
}

// decideOwners decides all undecided addresses and returns the endpoints whose addresses have changed. Those in pending
// are not replaced yet.
func (t *endpointTable) decideOwners(pending map[model.EndpointID]*model.Endpoint) map[model.EndpointID]struct{} {
	if len(t.owners.undecided) == 0 {
		return nil
	}
	everyone := func(yield func(claim, netip.Addr)) {
		for id, now := range pending {
			for _, a := range t.claimed(now) {
				yield(t.claimOf(id, now), a)
			}
		}
		for ep := range t.endpoints.All() {
			id := ep.id()
			if pending[id] != nil {
				continue
			}
			c := claim{id: id, created: ep.created, terminating: ep.isTerminating()}
			if node := t.nodeNames.names[ep.node]; t.node != "" && node == t.node {
				c.local, c.iface = true, ep.iface()
			}
			for a := range t.claims(ep) {
				yield(c, a)
			}
		}
	}
	return t.owners.decideAll(everyone, func(id model.EndpointID, a netip.Addr) bool {
		ep := t.endpoints.Get(id)
		return ep != nil && ep.Value.hasAddr(a)
	})
}

// replaceEndpoint replaces one endpoint by one with the addresses that it owns; nil removes it.
func (t *endpointTable) replaceEndpoint(id model.EndpointID, now *model.Endpoint, affected map[model.EndpointID]struct{}) {
	was := t.endpoints.Get(id)
	if now == nil {
		t.endpoints.Delete(id)
	} else {
		t.endpoints.Put(t.newEndpoint(id, now))
		if t.isLocal(now.Node) {
			affected[id] = struct{}{}
		}
	}
	if was != nil {
		if t.isLocal(t.nodeNames.names[was.node]) {
			affected[id] = struct{}{}
		}
		t.sets.exit(&was.item)
		t.sets.selected.labels.Leave(&was.item)
		t.nodeNames.drop(was.node)
	}
}

func (t *endpointTable) isLocal(node string) bool { return t.node == "" || node == t.node }

// claimInterface notes which interface an endpoint that changes names from now on, and adds to affected every other that may
// have become local or stopped being so.
func (t *endpointTable) claimInterface(id model.EndpointID, was *endpoint, now *model.Endpoint, affected map[model.EndpointID]struct{}) {
	if t.node == "" {
		return // interfaces of different nodes do not compete
	}
	named, names := was != nil && t.isLocal(t.nodeNames.names[was.node]), now != nil && t.isLocal(now.Node)
	if named {
		t.owners.interfaces.leave(was.iface(), id)
		t.reconsider(was.iface(), affected)
	}
	if names {
		t.reconsider(now.Iface, affected)
		t.owners.interfaces.join(now.Iface, id, now.Created)
	}
}

// reconsider has it decided again what the endpoints that name an interface have.
func (t *endpointTable) reconsider(iface string, affected map[model.EndpointID]struct{}) {
	if iface == "" {
		return
	}
	for _, c := range t.owners.interfaces[iface] {
		affected[c.id] = struct{}{}
		if ep := t.endpoints.Get(c.id); ep != nil {
			for a := range t.claims(ep) {
				t.owners.reconsider(a)
			}
		}
	}
}

// enforced returns the endpoint if it is local and has an interface to itself; nil: not so.
func (t *endpointTable) enforced(id model.EndpointID) *endpoint {
	ep := t.endpoints.Get(id)
	if ep == nil || t.node == "" {
		return ep
	}
	if t.nodeNames.names[ep.node] != t.node || t.owners.interfaces.holder(ep.iface()) != id {
		return nil
	}
	return ep
}
