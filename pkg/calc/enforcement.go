package calc

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// enforcement decides which endpoints of this node are enforced, and keeps the index of the node to them: those that are local, have an
// interface to themselves, and wait for nothing. An endpoint has there the labels by which rules find it.
type enforcement struct {
	endpoints *endpointTable
	policies  *policyTable
	awaited   *awaitedTable
	inherited *relabelTable
}

// follow brings endpoints up to date that may be enforced otherwise than before, and those that have waited for a Namespace which is known now.
func (e *enforcement) follow(affected map[model.EndpointID]struct{}) {
	for _, id := range e.awaited.arrived(e.knows) {
		affected[id] = struct{}{}
	}
	for id := range affected {
		ep := e.endpoints.enforced(id)
		if ep != nil {
			e.inherited.renew(&ep.item) // policies apply to it by the labels by which rules find it
		}
		if e.awaited.hold(id, ep, e.policies.local.endpoints[id] != nil, e.knows) {
			ep = nil
		}
		e.reconcile(id, ep)
	}
}

// knows reports whether there is a profile, as of this flush.
func (e *enforcement) knows(profile string) bool {
	return e.policies.profiles.Get(profile) != nil && !e.policies.dirty.profiles[profile].isGone()
}

// reconcile brings one endpoint of the local index up to date; nil: it is not to be enforced.
func (e *enforcement) reconcile(id model.EndpointID, ep *endpoint) {
	local := e.policies.local
	was := local.endpoints[id]
	if ep == nil {
		if was != nil {
			local.setSources(id, nil)
			delete(local.endpoints, id)
			e.leave(was)
		}
		return
	}
	identity, addrs := ep.Group().Identity(), ep.Value.listAddrs()
	local.setSources(id, ep.sources())
	if was != nil && was.iface == ep.iface() && slices.Equal(was.addrs, addrs) && slices.Equal(was.sources, ep.sources()) &&
		was.Group().Has(identity) && !was.Group().IsStale() {
		return
	}
	now := &localEndpoint{iface: ep.iface(), addrs: addrs, sources: ep.sources()}
	now.Value = id
	local.endpoints[id] = now
	if local.labels.Join(&now.localItem, identity) {
		e.policies.regroup(now.Group())
	}
	if was != nil {
		now.desired, now.applied = was.desired, was.applied
		e.leave(was)
	}
	e.policies.dirty.endpoints[id] = struct{}{}
}

// leave removes what the local index had of an endpoint.
func (e *enforcement) leave(was *localEndpoint) {
	dirty, labels := &e.policies.dirty, e.policies.local.labels
	if was.applied {
		dirty.endpoints[was.Value] = struct{}{}
	} else {
		delete(dirty.endpoints, was.Value) // no flush has said that it is there
	}
	labels.Leave(&was.localItem)
	if was.Group().IsEmpty() {
		e.policies.regroup(was.Group())
	}
}

// coverSources has model.SetOwnedAddrs follow the further sources of local endpoints.
func (e *enforcement) coverSources() {
	local, endpoints := e.policies.local, e.endpoints
	resourced := local.resourced
	local.resourced = false
	now, ok := endpoints.sets.owned.follow(resourced, maps.Values(local.sources))
	if !ok {
		return
	}
	endpoints.sets.owned.cover(now, func(yield func(netip.Addr) bool) {
		for ep := range endpoints.endpoints.All() {
			for a := range ep.Value.spokenFor() {
				if !yield(a) {
					return
				}
			}
		}
		for p := range endpoints.owners.reserved.all() {
			if !yield(p.Addr()) {
				return
			}
		}
	})
}
