package calc

import (
	"maps"
	"net/netip"

	"github.com/margay-project/margay/pkg/model"
)

// Flush computes the consequences of the applied updates and returns them as changes. Until the first InSync has been applied
// it only reads the updates, policies apart, and returns a Changes with InSync false. The first Flush afterwards returns
// everything, the reserved sets included. Lists are sorted. The caller owns the maps and the SetChanges; the lists of these and
// endpoint policies are shared and immutable.
func (g *Graph) Flush() model.Changes {
	in := g.pending
	g.pending = pending{}
	g.inSync = g.inSync || in.inSync

	// The state of the datastore, and with it the members of the sets that rules refer to so far.
	g.updateTiers(in.tiers)
	for name, p := range in.profiles {
		if labels, updated := g.updateProfile(name, p); updated {
			g.inherited.relabel(name, labels)
		}
	}
	g.networkSetTable.update(in.networkSets)
	g.networkSetTable.advance()
	g.updateReserved(in.services, in.nodes)
	if in.routes != nil {
		g.owners.follow(in.routes.Routes)
	}
	g.updateHosted(in.endpoints, in.hosts)
	g.awaitedTable.enforce(g, g.endpointTable.update(in.endpoints))
	g.inherited.advance()
	g.coverSources()
	g.sets.services.update(in.slices)
	g.owners.shrink()
	g.sets.selected.labels.Shrink()
	if !g.inSync {
		g.pending.policies = in.policies // for when all that they may select is known
		return model.Changes{}
	}

	in.policies, g.pending.policies = g.inherited.postpone(in.policies)

	// Policies and profiles that apply on this node now, and their rules: new ones, changed ones, and those that refer
	// to a port that appeared or vanished. This makes new sets and leaves others without a use.
	for key, p := range in.policies {
		g.updatePolicy(key, p)
	}
	g.activate()
	g.retryRefused(in.policies)
	g.admitServices()
	g.sets.admit()
	maps.Copy(g.dirty.rulesets, g.sets.reconcilePorts())
	g.buildRules()
	g.packSources()
	g.sets.dropUnused()

	g.networkSetTable.inSync = true
	out := model.Changes{Endpoints: g.resolve(), Sets: g.sets.changes(), InSync: true}
	empty(&g.sets.repopulated) // new definitions were built with the ports that they have
	g.dirty.reset()
	return out
}

// enforce brings local endpoints up to date that may be enforced otherwise than before, but for those that wait.
func (a *awaitedTable) enforce(g *Graph, affected map[model.EndpointID]struct{}) {
	known := func(profile string) bool {
		return g.profiles.Get(profile) != nil && !g.dirty.profiles[profile].isGone()
	}
	for _, id := range a.arrived(known) {
		affected[id] = struct{}{}
	}
	for id := range affected {
		ep := g.enforced(id)
		if ep != nil {
			g.inherited.renew(&ep.item) // policies apply to it by the labels by which rules find it
		}
		if a.hold(id, ep, g.local.endpoints[id] != nil, known) {
			ep = nil
		}
		g.reconcileLocal(id, ep)
	}
}

// coverSources has model.SetOwnedAddrs follow the further sources of local endpoints.
func (g *Graph) coverSources() {
	resourced := g.local.resourced
	g.local.resourced = false
	now, ok := g.sets.owned.follow(resourced, maps.Values(g.local.sources))
	if !ok {
		return
	}
	g.sets.owned.cover(now, func(yield func(netip.Addr) bool) {
		for ep := range g.endpoints.All() {
			for a := range ep.Value.spokenFor() {
				if !yield(a) {
					return
				}
			}
		}
		for p := range g.owners.reserved.all() {
			if !yield(p.Addr()) {
				return
			}
		}
	})
}
