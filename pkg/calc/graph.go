// Package calc is the calculation graph: it takes what the datastore says and works out what every endpoint of this
// node must enforce. It is pure and belongs to one goroutine.
//
// Apply only notes the newest value of every object. The graph is all that remembers the datastore. Flush brings the
// indexes up to date in one visible order:
//
//	items.go, addrs.go         what is kept of an endpoint, of which there may be very many; which selectors match which
//	                           endpoints and network sets is known by indexes of package labelindex
//	owners.go, interfaces.go   which endpoint each address and interface is, of those that claim it
//	sets.go, definitions.go,   the address sets rules refer to and their members, counted
//	services.go, members.go
//	policies.go, rules.go      which policies and profiles apply on this node, their rules with sets resolved
//	pack.go, unpack.go         rules of policies that do not apply on this node, in little memory
//	allotment.go               what Services and network sets of one namespace may contribute
//	spending.go                what the selectors of one namespace may find
//	tiers.go, resolve.go       the ordered policy of every local endpoint
//	extract.go                 parts of the datastore, given back to explain and lint
//
// What a flush says depends on the present state of the datastore and on what earlier flushes said, never on the order
// in which the state came about.
package calc

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// Graph is the calculation graph of one node. Not safe for concurrent use.
type Graph struct {
	node    string
	inSync  bool
	pending pending
	most    int // endpoints, see shrink

	// What the datastore says, as of the last flush. Profile labels, endpoint slices and network sets' contents are
	// kept by the indexes.
	endpoints   map[model.EndpointID]*endpoint
	unknown     map[model.EndpointID]string // endpoints of kinds that are not calculated, and the nodes they are on
	owners      *owners                     // of their addresses
	nodeNames   *nodeNames
	networkSets map[model.NetworkSetID]*networkSet
	profiles    map[string]*profile
	policies    map[model.PolicyKey]*policy
	services    map[model.ServiceKey]*model.Service
	allotted    [2]allotment // external addresses of Services; prefixes of network sets
	nodes       map[string][]netip.Addr
	tiers       tiers

	sets   *setIndex
	local  *localIndex
	result *resolver
	dirty  dirty
}

// endpoint is one endpoint of the cluster: little, because there may be very many.
type endpoint struct {
	item    // in the cluster-wide index
	node    nodeNumber
	created uint32 // Unix seconds
}

// iface is the endpoint's interface, empty unless it is on this node.
func (ep *endpoint) iface() string {
	if ep.Value.extra == nil {
		return ""
	}
	return ep.Value.extra.iface
}

func (ep *endpoint) isTerminating() bool { return ep.Value.extra != nil && ep.Value.extra.terminating }
func (ep *endpoint) isUnconfirmed() bool { return ep.Value.extra != nil && ep.Value.extra.unconfirmed }
func (ep *endpoint) isParticular() bool  { return ep.Value.extra != nil && ep.Value.extra.particular }

// claimed are the addresses that the endpoint claims. That may be more than it owns.
func (ep *endpoint) claimed() iter.Seq[netip.Addr] {
	if ep.isParticular() {
		return slices.Values(ep.Value.extra.claims)
	}
	return ep.Value.addrs()
}

// networkSet is one network set.
type networkSet struct {
	item  // in the cluster-wide index
	value *model.NetworkSet
}

// New returns the graph of the named node. With an empty name every endpoint is local, whatever its node and
// interface: for tools that judge both sides of a connection.
func New(node string) *Graph {
	sets := newSetIndex()
	return &Graph{
		node:        node,
		endpoints:   map[model.EndpointID]*endpoint{},
		unknown:     map[model.EndpointID]string{},
		owners:      newOwners(),
		nodeNames:   newNodeNames(),
		networkSets: map[model.NetworkSetID]*networkSet{},
		profiles:    map[string]*profile{},
		policies:    map[model.PolicyKey]*policy{},
		services:    map[model.ServiceKey]*model.Service{},
		allotted:    [2]allotment{newAllotment(MaxExternal), newAllotment(MaxNetworkSetNets)},
		nodes:       map[string][]netip.Addr{},
		tiers:       builtinTiers(),
		sets:        sets,
		local:       newLocalIndex(sets.labels),
		result:      newResolver(),
		dirty:       newDirty(),
	}
}

// Restate makes the next Flush say everything again, as the first one does: for a dataplane that starts over.
func (g *Graph) Restate() {
	for _, ep := range g.local.endpoints {
		ep.applied = false
		g.dirty.endpoints[ep.Value] = struct{}{}
	}
	for _, s := range g.sets.byID {
		s.applied, s.earlier = false, nil
		g.sets.touched[s] = struct{}{}
	}
}

// Apply notes the updates, which are shared with the caller and must not change any more. Of several updates of one
// object the last counts. It takes effect with the next Flush. Endpoints other than workloads are not calculated: they are
// problems.
func (g *Graph) Apply(updates []model.Update) {
	for _, u := range updates {
		g.pending.note(u)
	}
}

// pending is what has been applied since the last flush, by object. Nil values are absent objects.
type pending struct {
	endpoints   map[model.EndpointID]*model.Endpoint
	profiles    map[string]*model.Profile
	tiers       map[string]*model.Tier
	policies    map[model.PolicyKey]*model.Policy
	networkSets map[model.NetworkSetID]*model.NetworkSet
	services    map[model.ServiceKey]*model.Service
	slices      map[model.EndpointSliceID]*model.EndpointSlice
	nodes       map[string]*model.Node
	routes      *model.RoutesUpdate // nil: as they were
	inSync      bool
}

func (p *pending) note(u model.Update) {
	switch u := u.(type) {
	case model.EndpointUpdate:
		put(&p.endpoints, u.ID, u.Endpoint)
	case model.ProfileUpdate:
		put(&p.profiles, u.Name, u.Profile)
	case model.TierUpdate:
		put(&p.tiers, u.Name, u.Tier)
	case model.PolicyUpdate:
		put(&p.policies, u.Key, u.Policy)
	case model.NetworkSetUpdate:
		put(&p.networkSets, u.ID, u.Set)
	case model.ServiceUpdate:
		put(&p.services, u.Key, u.Service)
	case model.EndpointSliceUpdate:
		put(&p.slices, u.ID, u.Slice)
	case model.NodeUpdate:
		put(&p.nodes, u.Name, u.Node)
	case model.RoutesUpdate:
		p.routes = &u
	case model.InSync:
		p.inSync = true
	}
}

// put sets m[k] = v in a map that is made when first needed.
func put[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[k] = v
}
