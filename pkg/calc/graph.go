// Package calc is the calculation graph: from the objects of the datastore it computes the policy that every endpoint
// of this node must enforce. It is pure and belongs to one goroutine.
//
// Apply only notes the newest value of every object. The graph is all that remembers the datastore. Flush brings the
// indexes up to date in one visible order:
//
//	endpoints.go, endpoint.go  the endpoints of the cluster; contents.go and addrs.go: what is kept of each, of which there may
//	                           be very many. Indexes of package labelindex know which selectors match them
//	owners.go, interfaces.go   which endpoint each address and interface is, of those that claim it
//	enforcement.go             which endpoints of the node are enforced; awaited.go: those that wait until their Namespace is known
//	services.go, networksets.go  the other objects that addresses belong to; turning.go: large network sets change in parts
//	setindex.go, definitions.go  what rules refer to; its parts find the members of the sets:
//	selected.go, nodes.go,     by selector and named port, of nodes, of Services, and of addresses that are no further
//	endpointslices.go, owned.go  source of a pod
//	sets.go, members.go        the address sets and their members, counted;
//	listed.go, ascending.go    those of Services, in whole lists
//	backends.go                how the EndpointSlices of one namespace count
//	relabel.go                 what endpoints inherit from ServiceAccounts and Namespaces, in parts
//	turns.go                   how many endpoints and network sets of one namespace change at once
//	policies.go, activate.go,  which policies and profiles apply on this node, their rules with sets resolved
//	rules.go, references.go
//	pack.go                    the rules of all policies as they came, in little memory
//	allotment.go, room.go      what Services and network sets of one namespace may contribute, and those of all
//	networks.go, coarse.go     how many prefixes of network sets the selectors of one namespace may find; rules fail closed for the rest
//	leftout.go                 which are counted in again when there is room
//	numbers.go, past.go        how many numbers the pods of one namespace may give a name of ports
//	spending.go, relief.go     what the selectors of one namespace may find, when its policies come and later
//	local.go, tiers.go,        the ordered policy of every local endpoint
//	order.go, resolve.go
//	extract.go                 parts of the datastore, returned to explain and lint
//
// The graph consists of tables that each own their data. Their exported methods are the graph's.
//
// A flush depends on the present state of the datastore and on the results of earlier flushes, never on the order in
// which the state came about; but model.SetOwnedAddrs may have more members for a while than it must (owned.go).
package calc

import (
	"github.com/margay-project/margay/pkg/model"
)

// Graph is the calculation graph of one node. Not safe for concurrent use.
type Graph struct {
	inSync  bool
	pending pending
	sets    *setIndex

	// The state of the datastore, as of the last flush. Profile labels, endpoint slices and network sets' contents are
	// kept by the indexes.
	*endpointTable
	*awaitedTable
	*serviceTable
	*networkSetTable
	*policyTable
	inherited   *relabelTable
	enforcement *enforcement
}

// An Option changes how a graph calculates.
type Option func(*Graph)

// WithRoom has the graph fit in maps of addresses with so many entries; 0: AddressEntries.
func WithRoom(entries int) Option {
	return func(g *Graph) {
		if entries > 0 {
			g.room.fit(entries)
		}
	}
}

// New returns the graph of the named node. With an empty name every endpoint is local, whatever its node and
// interface: for tools that judge both sides of a connection.
func New(node string, options ...Option) *Graph {
	sets := newSetIndex()
	endpoints := newEndpointTable(node, sets)
	g := &Graph{
		awaitedTable:    &awaitedTable{waiting: map[model.EndpointID]waitingPod{}},
		sets:            sets,
		endpointTable:   endpoints,
		serviceTable:    newServiceTable(node, endpoints.owners, sets),
		networkSetTable: newNetworkSetTable(sets),
		policyTable:     newPolicyTable(sets),
	}
	g.inherited = &relabelTable{endpoints: endpoints, policies: g.policyTable, networkSets: g.networkSetTable}
	g.enforcement = &enforcement{endpoints: endpoints, policies: g.policyTable, awaited: g.awaitedTable, inherited: g.inherited}
	for _, o := range options {
		o(g)
	}
	return g
}

// Restate makes the next Flush say everything again, as the first one does: for a dataplane that starts over.
func (g *Graph) Restate() {
	for _, ep := range g.local.endpoints {
		ep.applied = false
		g.dirty.endpoints[ep.Value] = struct{}{}
	}
	g.sets.restate()
}

// Apply notes the updates, which are shared with the caller and must not change any more. Of several updates of one
// object the last counts. It takes effect with the next Flush. Endpoints other than workloads are not calculated: they are
// problems.
func (g *Graph) Apply(updates []model.Update) {
	for _, u := range updates {
		g.pending.note(u)
	}
}

// pending holds the updates since the last flush, by object. Nil values are absent objects.
type pending struct {
	endpoints   map[model.EndpointID]*model.Endpoint
	hosts       map[model.EndpointID]string // of the pods among them that are in the network of their host
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
		if delete(p.hosts, u.ID); u.Endpoint != nil && u.Endpoint.HostNetwork {
			put(&p.hosts, u.ID, u.Endpoint.Node)
			u.Endpoint = nil
		}
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
