package calc

import (
	"iter"
	"math"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/labelindex"
	"github.com/margay-project/margay/pkg/model"
)

// updateEndpoints replaces endpoints, nil ones are removed, and gives addresses to their owners.
func (g *Graph) updateEndpoints(updates map[model.EndpointID]*model.Endpoint) {
	affected := map[model.EndpointID]struct{}{}
	var contested map[model.EndpointID]*model.Endpoint // to be replaced once it is known what they own
	for id, now := range updates {
		if id.Kind != model.WorkloadEndpoint {
			g.setAside(id, now)
			continue
		}
		was := g.endpoints[id]
		if was == nil && now == nil || was != nil && now != nil && g.same(was, now) {
			continue
		}
		if was != nil {
			for a := range g.claims(was) {
				g.owners.leave(id, a)
			}
		}
		g.claimInterface(id, was, now, affected)
		if now == nil || !g.joinOwners(id, now) {
			g.replaceEndpoint(id, now, affected)
		} else {
			put(&contested, id, now)
		}
	}
	for id := range g.decideOwners(contested) {
		if contested[id] == nil {
			put(&contested, id, g.value(g.endpoints[id]))
		}
	}
	for id, now := range contested {
		g.replaceEndpoint(id, now, affected)
	}
	for id := range affected {
		g.reconcileLocal(id)
	}
}

// setAside remembers an endpoint of a kind that is not calculated, to report it; nil removes it.
func (g *Graph) setAside(id model.EndpointID, now *model.Endpoint) {
	delete(g.unknown, id)
	if now != nil {
		g.unknown[id] = now.Node
	}
}

// joinOwners makes an endpoint claim its addresses and reports whether any is contested.
func (g *Graph) joinOwners(id model.EndpointID, now *model.Endpoint) bool {
	contested := false
	c := g.claimOf(id, now)
	for _, a := range g.claimed(now) {
		contested = g.owners.join(c, a) || contested
	}
	return contested
}

// claimed are the addresses that an endpoint is heard about: what an annotation says counts on its own node only.
func (g *Graph) claimed(ep *model.Endpoint) []netip.Addr {
	if ep.Unconfirmed && !g.isLocal(ep.Node) {
		return nil
	}
	return ep.Addrs
}

func (g *Graph) claimOf(id model.EndpointID, ep *model.Endpoint) claim {
	c := claim{id: id, created: seconds(ep.Created), terminating: ep.Terminating}
	if g.node != "" && ep.Node == g.node {
		c.local, c.iface = true, ep.Iface
	}
	return c
}

// claims are the addresses that a stored endpoint is heard about.
func (g *Graph) claims(ep *endpoint) iter.Seq[netip.Addr] {
	if ep.isUnconfirmed() && !g.isLocal(g.nodeNames.names[ep.node]) {
		return func(func(netip.Addr) bool) {}
	}
	return ep.claimed()
}

// decideOwners decides what is to be decided and returns the endpoints that have other addresses now. Those in pending
// are not replaced yet.
func (g *Graph) decideOwners(pending map[model.EndpointID]*model.Endpoint) map[model.EndpointID]struct{} {
	if len(g.owners.undecided) == 0 {
		return nil
	}
	everyone := func(yield func(claim, netip.Addr)) {
		for id, now := range pending {
			for _, a := range g.claimed(now) {
				yield(g.claimOf(id, now), a)
			}
		}
		for id, ep := range g.endpoints {
			if pending[id] != nil {
				continue
			}
			c := claim{id: id, created: ep.created, terminating: ep.isTerminating()}
			if node := g.nodeNames.names[ep.node]; g.node != "" && node == g.node {
				c.local, c.iface = true, ep.iface()
			}
			for a := range g.claims(ep) {
				yield(c, a)
			}
		}
	}
	return g.owners.decideAll(everyone, func(id model.EndpointID, a netip.Addr) bool {
		ep := g.endpoints[id]
		return ep != nil && ep.Value.hasAddr(a)
	})
}

// replaceEndpoint replaces one endpoint by one with the addresses that it owns; nil removes it.
func (g *Graph) replaceEndpoint(id model.EndpointID, now *model.Endpoint, affected map[model.EndpointID]struct{}) {
	was := g.endpoints[id]
	delete(g.endpoints, id)
	if now != nil {
		g.endpoints[id] = g.newEndpoint(id, now)
		if g.isLocal(now.Node) {
			affected[id] = struct{}{}
		}
	}
	if was != nil {
		if g.isLocal(g.nodeNames.names[was.node]) {
			affected[id] = struct{}{}
		}
		g.sets.exit(&was.item)
		g.sets.labels.Leave(&was.item)
		g.nodeNames.drop(was.node)
	}
}

func (g *Graph) newEndpoint(id model.EndpointID, now *model.Endpoint) *endpoint {
	ep := &endpoint{node: g.nodeNames.hold(now.Node), created: seconds(now.Created)}
	own := g.owners.own(id, g.claimed(now))
	ep.Value.setAddrs(own)
	if now.Terminating || now.Unconfirmed || len(own) != len(now.Addrs) {
		x := ep.Value.more()
		x.particular, x.terminating, x.unconfirmed, x.claims = true, now.Terminating, now.Unconfirmed, now.Addrs
	}
	if g.isLocal(now.Node) {
		ep.Value.more().iface = now.Iface
	}
	g.sets.labels.Join(&ep.item, identityOf(now))
	g.sets.enter(&ep.item)
	return ep
}

// seconds is a time of creation as endpoints have it.
func seconds(created int64) uint32 {
	return uint32(min(max(created, 0), math.MaxUint32))
}

// value is the endpoint as it was given, but that Iface is only there on its own node.
func (g *Graph) value(ep *endpoint) *model.Endpoint {
	id := ep.Group().Identity()
	return &model.Endpoint{
		Node:        g.nodeNames.names[ep.node],
		Iface:       ep.iface(),
		Addrs:       slices.Collect(ep.claimed()),
		Labels:      id.Labels,
		Profiles:    id.Parents,
		Ports:       id.Ports,
		Created:     int64(ep.created),
		Terminating: ep.isTerminating(),
		Unconfirmed: ep.isUnconfirmed(),
	}
}

// same reports whether the stored endpoint has the value already.
func (g *Graph) same(was *endpoint, now *model.Endpoint) bool {
	if was.isTerminating() != now.Terminating || was.isUnconfirmed() != now.Unconfirmed || was.created != seconds(now.Created) {
		return false
	}
	if was.isParticular() && !slices.Equal(was.Value.extra.claims, now.Addrs) || !was.isParticular() && !was.Value.hasAddrs(now.Addrs) {
		return false
	}
	return g.nodeNames.names[was.node] == now.Node && (was.iface() == now.Iface || !g.isLocal(now.Node)) &&
		was.Group().Has(identityOf(now))
}

func (g *Graph) isLocal(node string) bool { return g.node == "" || node == g.node }

// localIndex holds the endpoints of this node and the policies that apply to them.
type localIndex struct {
	labels    *nodeIndex // of local endpoints and policy selectors
	endpoints map[model.EndpointID]*localEndpoint
}

// localEndpoint is an endpoint of this node that is enforced.
type localEndpoint struct {
	localItem // in the index of the node
	iface     string
	addrs     []netip.Addr
	desired   *model.EndpointPolicy // as of the last flush; nil if there was none
	applied   bool                  // that flush, or an earlier one, has returned it
}

func newLocalIndex(cluster *clusterIndex) *localIndex {
	return &localIndex{labels: labelindex.New[model.EndpointID, subjects](cluster.ParentLabels), endpoints: map[model.EndpointID]*localEndpoint{}}
}

func identityOf(ep *model.Endpoint) labelindex.Identity {
	return labelindex.Identity{Labels: ep.Labels, Parents: ep.Profiles, Ports: ep.Ports}
}

// claimInterface notes which interface an endpoint that changes names from now on, and adds to affected every other that may
// have become local or stopped being so.
func (g *Graph) claimInterface(id model.EndpointID, was *endpoint, now *model.Endpoint, affected map[model.EndpointID]struct{}) {
	if g.node == "" {
		return // interfaces of different nodes do not compete
	}
	named, names := was != nil && g.isLocal(g.nodeNames.names[was.node]), now != nil && g.isLocal(now.Node)
	if named {
		g.owners.interfaces.leave(was.iface(), id)
		g.reconsider(was.iface(), affected)
	}
	if names {
		g.reconsider(now.Iface, affected)
		g.owners.interfaces.join(now.Iface, id, seconds(now.Created))
	}
}

// reconsider has it decided again what the endpoints that name an interface have.
func (g *Graph) reconsider(iface string, affected map[model.EndpointID]struct{}) {
	if iface == "" {
		return
	}
	for _, c := range g.owners.interfaces[iface] {
		affected[c.id] = struct{}{}
		if ep := g.endpoints[c.id]; ep != nil {
			for a := range g.claims(ep) {
				g.owners.reconsider(a)
			}
		}
	}
}

// enforced reports whether the endpoint is local and has an interface to itself.
func (g *Graph) enforced(id model.EndpointID, ep *endpoint) bool {
	if g.node == "" {
		return true
	}
	return g.nodeNames.names[ep.node] == g.node && g.owners.interfaces.holder(ep.iface()) == id
}

// reconcileLocal brings one endpoint of the local index up to date.
func (g *Graph) reconcileLocal(id model.EndpointID) {
	was, ep := g.local.endpoints[id], g.endpoints[id]
	if ep == nil || !g.enforced(id, ep) {
		if was != nil {
			delete(g.local.endpoints, id)
			g.leaveLocal(was)
		}
		return
	}
	identity, addrs := ep.Group().Identity(), ep.Value.listAddrs()
	if was != nil && was.iface == ep.iface() && slices.Equal(was.addrs, addrs) && was.Group().Has(identity) {
		return
	}
	now := &localEndpoint{iface: ep.iface(), addrs: addrs}
	now.Value = id
	g.local.endpoints[id] = now
	if g.local.labels.Join(&now.localItem, identity) {
		g.regroup(now.Group())
	}
	if was != nil {
		now.desired, now.applied = was.desired, was.applied
		g.leaveLocal(was)
	}
	g.dirty.endpoints[id] = struct{}{}
}

func (g *Graph) leaveLocal(was *localEndpoint) {
	if was.applied {
		g.dirty.endpoints[was.Value] = struct{}{}
	} else {
		delete(g.dirty.endpoints, was.Value) // no flush has said that it is there
	}
	g.local.labels.Leave(&was.localItem)
	if was.Group().IsEmpty() {
		g.regroup(was.Group())
	}
}

// regroup notes what depends on a group of the index of the node that came into being or died.
func (g *Graph) regroup(gr *localGroup) {
	g.dirty.groups[gr] = struct{}{}
	for s := range gr.Selections() {
		g.dirty.selections[s] = struct{}{}
	}
	for name := range gr.Parents() {
		g.dirty.profiles[name] = struct{}{}
	}
}
