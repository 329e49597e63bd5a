package calc

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/keyset"
	"github.com/margay-project/margay/pkg/model"
)

// The functions below return parts of the datastore, as of the last Flush, for questions that this node does
// not calculate: how pods of other nodes are judged, or whether policy makes sense for all of them.

// Around returns the objects that decide how packets between the endpoints and addresses are judged, with everything
// else that has these addresses: a graph of these objects gives the same results for these addresses as a graph of the
// whole datastore. It looks at every endpoint and policy once, and at no rule.
func (g *Graph) Around(ids []model.EndpointID, addrs []netip.Addr) *Part {
	e := newExtract(g)
	addrs = slices.Clone(addrs)
	for _, id := range ids {
		if ep := g.endpoints.Get(id); ep != nil {
			e.endpoint(ep.id(), ep)
			addrs = slices.AppendSeq(addrs, ep.Value.addrs())
		}
	}
	for ep := range g.endpoints.All() {
		if slices.ContainsFunc(addrs, ep.Value.hasAddr) {
			e.endpoint(ep.id(), ep)
		}
	}
	ends := e.groups
	e.groups = map[*group]bool{}
	for p := range g.policies.All() {
		for gr := range ends {
			if p.concerns(g.policyTable, gr) {
				e.policy(p.key, p)
				break
			}
		}
	}
	for name := range e.profiles {
		if p := g.profiles.Get(name); p != nil {
			source, arrived := g.dirty.profileSource(p)
			e.names(source, arrived)
		}
	}
	for id, ns := range g.networkSets {
		if slices.ContainsFunc(ns.counts(), func(n netip.Prefix) bool { return slices.ContainsFunc(addrs, n.Contains) }) {
			e.networkSet(id, ns)
		}
	}
	if e.namedPorts {
		// The ports of a name are those of every endpoint that rules can select.
		for ep := range g.endpoints.All() {
			if len(ep.Group().Ports()) > 0 && ep.Value.shape != noAddr && !e.groups[ep.Group()] {
				e.endpoint(ep.id(), ep)
			}
		}
	}
	return e.rest()
}

// mostSampled is how many bytes packed rules have that a sample unpacks: some 300,000 short rules, in 0.3 s.
const mostSampled = 4 << 20

// Sample returns the objects of the datastore, but of endpoints that no policy tells apart only one. It looks at every
// endpoint and policy once. leftOut are the policies with the most rules, if a tenant has made so many that others would wait for them.
func (g *Graph) Sample() (part *Part, leftOut []model.PolicyKey) {
	e := newExtract(g)
	policies, leftOut := sampled(&g.policies, mostSampled)
	for _, p := range policies {
		e.policy(p.key, p)
	}
	for id, ns := range g.networkSets {
		e.networkSet(id, ns)
	}
	by := g.distinctions(policies)
	kinds, ofGroup := map[string]int{}, map[*group]int{}
	type likeness struct {
		kind  int
		addrs string
	}
	seen := map[likeness]bool{}
	for ep := range g.endpoints.All() {
		kind, known := ofGroup[ep.Group()]
		if !known {
			text := by.group(ep.Group())
			if kind = kinds[text]; kind == 0 {
				kind = len(kinds) + 1
				kinds[text] = kind
			}
			ofGroup[ep.Group()] = kind
		}
		if like := (likeness{kind, by.addrs(&ep.Value)}); !seen[like] {
			seen[like] = true
			e.endpoint(ep.id(), ep)
		}
	}
	return e.rest(), leftOut
}

// sampled are the policies whose packed rules have most bytes together at most, those with few rules first, and the keys of the others.
func sampled(all *keyset.Set[model.PolicyKey, policy], most int) (some []*policy, others []model.PolicyKey) {
	for p := range all.All() {
		some = append(some, p)
	}
	slices.SortFunc(some, func(a, b *policy) int {
		return cmp.Or(cmp.Compare(a.source.size(), b.source.size()), strings.Compare(a.key.SortKey(), b.key.SortKey()))
	})
	sum := 0
	for i, p := range some {
		if sum += p.source.size(); sum > most {
			for _, p := range some[i:] {
				others = append(others, p.key)
			}
			return some[:i], others
		}
	}
	return some, nil
}

// extract collects a Part.
type extract struct {
	graph      *Graph
	part       Part
	ids        map[model.EndpointID]bool
	groups     map[*group]bool // of endpoints
	profiles   map[string]bool // named so far
	namedPorts bool            // a rule refers to a port by name
}

func newExtract(g *Graph) *extract {
	return &extract{graph: g, ids: map[model.EndpointID]bool{}, groups: map[*group]bool{}, profiles: map[string]bool{}}
}

func (e *extract) endpoint(id model.EndpointID, ep *endpoint) {
	e.groups[ep.Group()] = true
	if e.ids[id] {
		return
	}
	e.ids[id] = true
	value, _ := e.graph.FindEndpoint(id)
	e.part.add(model.EndpointUpdate{ID: id, Endpoint: value})
	e.name(ep.Group())
}

func (e *extract) name(gr *group) {
	for name := range gr.Parents() {
		e.profiles[name] = true
	}
}

func (e *extract) networkSet(id model.NetworkSetID, ns *networkSet) {
	value := ns.Group().Identity()
	e.part.add(model.NetworkSetUpdate{
		ID: id, Set: &model.NetworkSet{Nets: ns.counts(), Labels: value.Labels, Profiles: value.Parents, LeftOut: ns.isLeftOut()},
	})
	e.name(ns.Group())
}

func (e *extract) policy(key model.PolicyKey, p *policy) {
	source, arrived := e.graph.dirty.policySource(p)
	value := p.value(arrived)
	e.part.add(model.PolicyUpdate{Key: key, Policy: value})
	e.part.later(source, &value.Ingress, &value.Egress)
	e.names(source, arrived)
}

// names notes whether rules refer to ports by name, of which those that have arrived are not packed yet.
func (e *extract) names(source packedRules, arrived [2][]model.Rule) {
	e.namedPorts = e.namedPorts || source.namesPorts() || slices.ContainsFunc(arrived[:], namePorts)
}

// namePorts reports whether a rule refers to ports by name.
func namePorts(rules []model.Rule) bool {
	for i := range rules {
		for _, side := range []*model.Entity{&rules[i].Source, &rules[i].Destination} {
			if len(side.NamedPorts)+len(side.NotNamedPorts) > 0 {
				return true
			}
		}
	}
	return false
}

// rest adds the profiles that were named, and the objects that every extract contains (tiers, nodes, Services,
// EndpointSlices), and returns the whole extract.
func (e *extract) rest() *Part {
	g := e.graph
	for name := range e.profiles {
		if p := g.profiles.Get(name); p != nil {
			source, arrived := g.dirty.profileSource(p)
			value := &model.Profile{Labels: g.sets.selected.labels.ParentLabels(name), Ingress: arrived[model.Ingress], Egress: arrived[model.Egress]}
			e.part.add(model.ProfileUpdate{Name: name, Profile: value})
			e.part.later(source, &value.Ingress, &value.Egress)
		}
	}
	for name, t := range g.tiers {
		e.part.add(model.TierUpdate{Name: name, Tier: &t})
	}
	for name, n := range g.sets.nodes.nodes {
		e.part.add(model.NodeUpdate{Name: name, Node: n})
	}
	for key, s := range g.services {
		e.part.add(model.ServiceUpdate{Key: key, Service: s})
	}
	for id, s := range g.sets.services.backends.slices {
		value := s.EndpointSlice
		if s.crowded {
			value = &model.EndpointSlice{Service: value.Service, Addrs: value.Addrs, Ports: value.Ports, LeftOut: true}
		}
		e.part.add(model.EndpointSliceUpdate{ID: id, Slice: value})
	}
	return &e.part
}
