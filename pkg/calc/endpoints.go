package calc

import (
	"net/netip"
	"slices"
	"unique"

	"github.com/margay-project/margay/pkg/model"
)

// updateEndpoints replaces endpoints; nil ones are removed.
func (g *Graph) updateEndpoints(updates map[model.EndpointID]*model.Endpoint) {
	unsettled := map[model.EndpointID]struct{}{}
	var terminating map[model.EndpointID]*model.Endpoint // to be replaced when the others are: they may have its addresses
	for id, now := range updates {
		was := g.endpoints[id]
		if was == nil && now == nil || was != nil && now != nil && g.same(was, now) {
			continue
		}
		if was != nil {
			g.owners.leave(id, was.isTerminating(), was.said())
		}
		if now != nil {
			g.owners.join(id, now.Terminating, slices.Values(now.Addrs))
		}
		if now != nil && now.Terminating {
			put(&terminating, id, now)
			continue
		}
		g.replaceEndpoint(id, now, unsettled)
	}
	for id := range g.settleOwners(terminating) {
		if terminating[id] == nil {
			put(&terminating, id, g.endpoints[id].value())
		}
	}
	for id, now := range terminating {
		g.replaceEndpoint(id, now, unsettled)
	}
	for id := range unsettled {
		g.settleLocal(id)
	}
}

// settleOwners returns the terminating endpoints that have other addresses now. Those in updates are not replaced yet.
func (g *Graph) settleOwners(updates map[model.EndpointID]*model.Endpoint) map[model.EndpointID]struct{} {
	if len(g.owners.unsettled) == 0 {
		return nil
	}
	return g.owners.settle(func(yield func(netip.Addr)) {
		for id, ep := range g.endpoints {
			if ep.isTerminating() || updates[id] != nil {
				continue
			}
			for a := range ep.addrs() {
				yield(a)
			}
		}
	})
}

// replaceEndpoint replaces one endpoint; nil removes it. A terminating one gets the addresses that it has.
func (g *Graph) replaceEndpoint(id model.EndpointID, now *model.Endpoint, unsettled map[model.EndpointID]struct{}) {
	was := g.endpoints[id]
	delete(g.endpoints, id)
	var ep *endpoint
	if now != nil {
		ep = g.newEndpoint(now)
		g.endpoints[id] = ep
	}
	if was != nil {
		g.sets.exit(&was.item)
		g.sets.labels.leave(&was.item)
	}
	g.reclaim(id, was, ep, unsettled)
}

func (g *Graph) newEndpoint(now *model.Endpoint) *endpoint {
	ep := &endpoint{node: unique.Make(now.Node)}
	if now.Terminating {
		ep.setAddrs(g.owners.own(now.Addrs))
		ep.more().terminating, ep.extra.said = true, now.Addrs
	} else {
		ep.setAddrs(now.Addrs)
	}
	if g.isLocal(now.Node) {
		ep.more().iface = now.Iface
	}
	g.sets.labels.join(&ep.item, identity{labels: now.Labels, profiles: now.Profiles, ports: now.Ports})
	g.sets.enter(&ep.item)
	return ep
}

// value is the endpoint as it was given, but that Iface is only there on its own node.
func (ep *endpoint) value() *model.Endpoint {
	id := ep.group.identity()
	return &model.Endpoint{
		Node:        ep.node.Value(),
		Iface:       ep.iface(),
		Addrs:       slices.Collect(ep.said()),
		Labels:      id.labels,
		Profiles:    id.profiles,
		Ports:       id.ports,
		Terminating: ep.isTerminating(),
	}
}

// same reports whether the stored endpoint has the value already.
func (g *Graph) same(was *endpoint, now *model.Endpoint) bool {
	if was.isTerminating() != now.Terminating {
		return false
	}
	if now.Terminating && !slices.Equal(was.extra.said, now.Addrs) || !now.Terminating && !was.hasAddrs(now.Addrs) {
		return false
	}
	return was.node.Value() == now.Node && (was.iface() == now.Iface || !g.isLocal(now.Node)) &&
		was.group.is(identity{labels: now.Labels, profiles: now.Profiles, ports: now.Ports})
}

func (g *Graph) isLocal(node string) bool { return g.node == "" || node == g.node }

// localIndex holds the endpoints of this node and the policies that apply to them.
type localIndex struct {
	labels    *labelIndex // of local endpoints and policy selectors
	endpoints map[model.EndpointID]*localEndpoint
	claims    map[string][]model.EndpointID // those of this node by the interface they name, even if none; sorted
}

// localEndpoint is an endpoint of this node that is enforced.
type localEndpoint struct {
	item   // in the local index
	id     model.EndpointID
	iface  string
	policy *model.EndpointPolicy // as of the last flush; nil if there was none
	told   bool                  // and that flush, or an earlier one, has said so
}

func newLocalIndex(source *labelIndex) *localIndex {
	labels := newLabelIndex()
	labels.source = source
	return &localIndex{
		labels:    labels,
		endpoints: map[model.EndpointID]*localEndpoint{},
		claims:    map[string][]model.EndpointID{},
	}
}

// reclaim notes that an endpoint changed and which interface it claims now, and adds to unsettled every endpoint that
// may have become local or stopped being so.
func (g *Graph) reclaim(id model.EndpointID, was, now *endpoint, unsettled map[model.EndpointID]struct{}) {
	if was != nil && g.isLocal(was.node.Value()) {
		unsettled[id] = struct{}{}
		rest := slices.DeleteFunc(g.local.claims[was.iface()], func(o model.EndpointID) bool { return o == id })
		g.local.claims[was.iface()] = rest
		if len(rest) == 0 {
			delete(g.local.claims, was.iface())
		} else {
			unsettled[rest[0]] = struct{}{}
		}
	}
	if now != nil && g.isLocal(now.node.Value()) {
		unsettled[id] = struct{}{}
		if g.node == "" {
			return // interfaces of different nodes do not compete
		}
		others := g.local.claims[now.iface()]
		if len(others) > 0 {
			unsettled[others[0]] = struct{}{}
		}
		i, _ := slices.BinarySearchFunc(others, id, model.EndpointID.Compare)
		g.local.claims[now.iface()] = slices.Insert(others, i, id)
	}
}

// enforced reports whether the endpoint is local and has an interface to itself: the lowest id that claims it wins.
func (g *Graph) enforced(id model.EndpointID, ep *endpoint) bool {
	if g.node == "" {
		return true
	}
	return ep.node.Value() == g.node && ep.iface() != "" && g.local.claims[ep.iface()][0] == id
}

// settleLocal brings one endpoint of the local index up to date.
func (g *Graph) settleLocal(id model.EndpointID) {
	was, ep := g.local.endpoints[id], g.endpoints[id]
	if ep == nil || !g.enforced(id, ep) {
		if was != nil {
			delete(g.local.endpoints, id)
			g.leaveLocal(was)
		}
		return
	}
	identity, addrs := ep.group.identity(), ep.listAddrs()
	if was != nil && was.iface == ep.iface() && was.hasAddrs(addrs) && was.group.is(identity) {
		return
	}
	now := &localEndpoint{id: id, iface: ep.iface()}
	now.setAddrs(addrs)
	now.more().local = now
	g.local.labels.join(&now.item, identity)
	g.local.endpoints[id] = now
	if now.next == nil {
		g.regroup(now.group)
	}
	if was != nil {
		now.policy, now.told = was.policy, was.told
		g.leaveLocal(was)
	}
	g.dirty.endpoints[id] = struct{}{}
}

func (g *Graph) leaveLocal(was *localEndpoint) {
	if was.told {
		g.dirty.endpoints[was.id] = struct{}{}
	} else {
		delete(g.dirty.endpoints, was.id) // no flush has said that it is there
	}
	g.local.labels.leave(&was.item)
	if was.group.items == nil {
		g.regroup(was.group)
	}
}

// regroup notes what depends on a group of the local index that came into being or died.
func (g *Graph) regroup(gr *group) {
	g.dirty.groups[gr] = struct{}{}
	for _, m := range gr.matches {
		g.dirty.selections[m.selection] = struct{}{}
	}
	for _, p := range gr.parents {
		g.dirty.profiles[p.name] = struct{}{}
	}
}
