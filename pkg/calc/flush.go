package calc

import (
	"maps"

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
	turns := g.inherited.turns()
	g.pending.networkSets = g.networkSetTable.update(in.networkSets, turns)
	g.networkSetTable.advance()
	g.updateReserved(in.services, in.nodes)
	if in.routes != nil {
		g.owners.follow(in.routes.Routes)
	}
	g.updateHosted(in.endpoints, in.hosts)
	affected, later := g.endpointTable.update(in.endpoints, turns)
	g.pending.endpoints = later
	g.enforcement.follow(affected)
	g.inherited.advance()
	g.enforcement.coverSources()
	g.sets.services.update(in.slices)
	g.owners.shrink()
	g.sets.selected.labels.Shrink()
	if !g.inSync {
		g.pending.policies = in.policies // for when all that they may select is known
		return model.Changes{}
	}

	in.policies, g.pending.policies = g.inherited.postpone(in.policies, g.pending.waiting())

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
