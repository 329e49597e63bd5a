package calc

import (
	"net/netip"

	"github.com/margay-project/margay/pkg/labelindex"
	"github.com/margay-project/margay/pkg/mapsize"
	"github.com/margay-project/margay/pkg/model"
)

// Flush works out the consequences of what has been applied and returns what they change. Until the first InSync has
// been applied it only takes in what has been applied, policies apart, and returns a Changes with InSync false; the
// first Flush afterwards returns everything, the reserved sets included. Lists are sorted. The caller owns the maps and the SetChanges; endpoint policies are
// shared and immutable.
func (g *Graph) Flush() model.Changes {
	in := g.pending
	g.pending = pending{}
	g.inSync = g.inSync || in.inSync

	// The state of the datastore, and with it the members of the sets that rules refer to so far.
	g.updateTiers(in.tiers)
	for name, p := range in.profiles {
		g.updateProfile(name, p)
	}
	for id, ns := range in.networkSets {
		g.allotNetworkSet(id, ns)
	}
	g.updateReserved(in.services, in.nodes)
	if in.routes != nil {
		g.owners.follow(in.routes.Routes)
	}
	g.updateEndpoints(in.endpoints)
	for id, s := range in.slices {
		g.sets.updateSlice(id, s)
	}
	mapsize.Shrink(&g.endpoints, &g.most)
	g.owners.shrink()
	g.sets.labels.Shrink()
	if !g.inSync {
		g.pending.policies = in.policies // for when all that they may select is known
		return model.Changes{}
	}

	// Policies and profiles that apply on this node now, and their rules: new ones, changed ones, and those that refer
	// to a port that appeared or vanished. This makes new sets and leaves others without a use.
	for key, p := range in.policies {
		g.updatePolicy(key, p)
	}
	g.activate()
	g.retryRefused(in.policies)
	for _, rs := range g.sets.reconcilePorts() {
		g.dirty.rulesets[rs] = struct{}{}
	}
	g.buildRules()
	g.sets.dropUnused()

	out := model.Changes{Endpoints: g.resolve(), Sets: g.sets.changes(), InSync: true}
	g.dirty.reset()
	return out
}

// dirty is what Flush has yet to look at again. It is empty between flushes.
type dirty struct {
	selections map[*policySelection]struct{} // of the local index: matching some group or none may have changed
	policies   map[*policy]struct{}          // may have become active or inactive, or changed
	profiles   map[string]struct{}           // likewise
	rulesets   map[*ruleset]struct{}         // to be built again
	groups     map[*localGroup]struct{}      // of the local index: matched by other policies, or by changed ones
	endpoints  map[model.EndpointID]struct{} // local ones that came, changed or left
}

func newDirty() dirty {
	return dirty{
		selections: map[*policySelection]struct{}{},
		policies:   map[*policy]struct{}{},
		profiles:   map[string]struct{}{},
		rulesets:   map[*ruleset]struct{}{},
		groups:     map[*localGroup]struct{}{},
		endpoints:  map[model.EndpointID]struct{}{},
	}
}

func (d *dirty) reset() {
	empty(&d.selections)
	empty(&d.policies)
	empty(&d.profiles)
	empty(&d.rulesets)
	empty(&d.groups)
	empty(&d.endpoints)
}

// empty empties a map. One that was large is replaced: clearing it takes as long as it was large once, every time.
func empty[K comparable, V any](m *map[K]V) {
	if len(*m) > 64 {
		*m = map[K]V{}
		return
	}
	clear(*m)
}

// allotNetworkSet replaces one network set, nil removes it, and with it those of its namespace for which there is room now,
// or none any more. Global ones are not bounded.
func (g *Graph) allotNetworkSet(id model.NetworkSetID, now *model.NetworkSet) {
	if id.Namespace != "" {
		size := 0
		if now != nil {
			size = len(now.Nets)
		}
		for _, name := range g.allotted[1].set(id.Namespace, id.Name, size) {
			other := model.NetworkSetID{Namespace: id.Namespace, Name: name}
			if ns := g.networkSets[other]; ns != nil {
				g.updateNetworkSet(other, ns.value)
			}
		}
	}
	g.updateNetworkSet(id, now)
}

// updateNetworkSet replaces one network set; nil removes it. One that is left out has no prefixes.
func (g *Graph) updateNetworkSet(id model.NetworkSetID, now *model.NetworkSet) {
	was := g.networkSets[id]
	delete(g.networkSets, id)
	if now != nil {
		ns := &networkSet{value: now}
		if ns.Value.more(); !g.allotted[1].isOut(id.Namespace, id.Name) {
			ns.Value.extra.nets = now.Nets
		}
		g.sets.labels.Join(&ns.item, labelindex.Identity{Labels: now.Labels, Parents: now.Profiles})
		g.sets.enter(&ns.item)
		g.networkSets[id] = ns
	}
	if was != nil {
		g.sets.exit(&was.item)
		g.sets.labels.Leave(&was.item)
	}
}

// updateReserved keeps the sets that no rule refers to.
func (g *Graph) updateReserved(services map[model.ServiceKey]*model.Service, nodes map[string]*model.Node) {
	for key, now := range services {
		g.updateService(key, now)
	}
	for name, now := range nodes {
		before := g.nodes[name]
		delete(g.nodes, name)
		if now != nil {
			g.nodes[name] = now.Addrs
		}
		g.replaceReserved(before, g.nodes[name])
		if name == g.node {
			g.sets.replaceAddrs(model.SetNodeAddrs, before, g.nodes[name])
		}
	}
}

// replaceReserved replaces one object's contribution to the addresses that no endpoint can own.
func (g *Graph) replaceReserved(was, now []netip.Addr) {
	for _, a := range now {
		g.owners.reserve(a, 1)
	}
	for _, a := range was {
		g.owners.reserve(a, -1)
	}
}
