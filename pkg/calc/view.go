package calc

import (
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// The views below describe the state as of the last Flush, for explain, status and tests. They change nothing. The
// caller owns the results, except pointers to policies.

// LocalEndpoints returns the policy of every endpoint enforced on this node, by id.
func (t *policyTable) LocalEndpoints() []*model.EndpointPolicy {
	all := make([]*model.EndpointPolicy, 0, len(t.local.endpoints))
	for _, ep := range t.local.endpoints {
		if ep.desired != nil { // not in sync yet
			all = append(all, ep.desired)
		}
	}
	slices.SortFunc(all, func(a, b *model.EndpointPolicy) int { return a.ID.Compare(b.ID) })
	return all
}

// LocalEndpoint returns the policy of one endpoint; not ok if it is not enforced on this node.
func (t *policyTable) LocalEndpoint(id model.EndpointID) (*model.EndpointPolicy, bool) {
	ep := t.local.endpoints[id]
	if ep == nil || ep.desired == nil {
		return nil, false
	}
	return ep.desired, true
}

// FindEndpoint returns an endpoint of any node. Iface is only filled in for endpoints of this one. Addrs are those that
// it owns, so that nothing about them is unconfirmed. Addresses and ports are shared and must not be changed.
func (t *endpointTable) FindEndpoint(name model.EndpointID) (*model.Endpoint, bool) {
	ep := t.endpoints.Get(name)
	if ep == nil {
		return nil, false
	}
	value := t.value(ep)
	value.Addrs, value.Unconfirmed = ep.Value.listAddrs(), false
	return value, true
}

// EndpointByAddr returns the endpoint of any node that owns the address. It looks at every endpoint.
func (t *endpointTable) EndpointByAddr(addr netip.Addr) (model.EndpointID, bool) {
	for ep := range t.endpoints.All() {
		if ep.Value.hasAddr(addr) {
			return ep.id(), true
		}
	}
	return model.EndpointID{}, false
}

// NamespacesByAddr returns the namespaces of the endpoints of all nodes that have one, by the addresses that they own. It looks at every
// endpoint, once for all addresses.
func (t *endpointTable) NamespacesByAddr() map[netip.Addr]string {
	of := make(map[netip.Addr]string, t.endpoints.Len())
	for ep := range t.endpoints.All() {
		if ep.id().Namespace == "" {
			continue
		}
		for a := range ep.Value.addrs() {
			of[a] = ep.id().Namespace
		}
	}
	return of
}

// Nodes counts the endpoints by the node they are on. It looks at every endpoint.
func (t *endpointTable) Nodes() map[string]int {
	count := map[string]int{}
	for ep := range t.endpoints.All() {
		count[t.nodeNames.names[ep.node]]++
	}
	return count
}

// SetText describes a set to people: `pods app=db in namespace shop`, `named port http/tcp 8080 of all pods in namespace
// shop`, or in the parts that the author of a Calico policy wrote: `selector app == "db" in namespace shop`, `named
// port http/tcp 8080 of all()`; `service shop/web port 443/tcp`, `service shop/web`. Not ok if there is no such set.
func (g *Graph) SetText(id model.SetID) (string, bool) {
	s, ok := g.sets.byID[id]
	switch {
	case !ok:
		return "", false
	case id == model.SetServiceAddrs:
		return "addresses of all services", true
	case id == model.SetNodeAddrs:
		return "addresses of this node", true
	case id == model.SetOwnedAddrs:
		return "addresses that are no further source of a pod", true
	}
	return clipped(selector.Printable(s.definition.text(s.port))), true
}

// clipped is a text for people of bounded length: a tenant decides how long that of a selector is, and in how many rules it is.
func clipped(text string) string {
	const most = 1200 // the longest selector of Calico's API, and words around it
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}

// SetMembers returns the members of a set, sorted. Not ok if there is no such set.
func (g *Graph) SetMembers(id model.SetID) ([]netip.Prefix, bool) {
	s, ok := g.sets.byID[id]
	if !ok {
		return nil, false
	}
	return s.sorted(), true
}

// HasSet reports whether there is such a set.
func (g *Graph) HasSet(id model.SetID) bool {
	_, ok := g.sets.byID[id]
	return ok
}

// Members returns the members of a set in no order, which takes less time than SetMembers. A set that does not exist has none.
func (g *Graph) Members(id model.SetID) []netip.Prefix {
	s, ok := g.sets.byID[id]
	if !ok {
		return nil
	}
	return s.all()
}

// SetContains reports whether the address is in a member of the set. A set that does not exist contains nothing.
func (g *Graph) SetContains(id model.SetID, addr netip.Addr) bool {
	s, ok := g.sets.byID[id]
	if !ok {
		return false
	}
	return s.contains(addr)
}

// PolicyPlace is where a policy stands in the total order (D-15).
type PolicyPlace struct {
	Tier   string
	Order  float64 // model.NoOrder: the policy has none
	Staged bool
}

// PolicyPlaces are the places of all policies of the cluster, in no order.
func (t *policyTable) PolicyPlaces() iter.Seq2[model.PolicyKey, PolicyPlace] {
	return func(yield func(model.PolicyKey, PolicyPlace) bool) {
		for p := range t.policies.All() {
			if !yield(p.key, p.place()) {
				return
			}
		}
	}
}

// PlaceOf is the place of one policy; not ok if it does not exist.
func (t *policyTable) PlaceOf(key model.PolicyKey) (PolicyPlace, bool) {
	p := t.policies.Get(key)
	if p == nil {
		return PolicyPlace{}, false
	}
	return p.place(), true
}

func (p *policy) place() PolicyPlace { return PolicyPlace{p.tier, p.order, p.staged} }

// FindTier returns a tier, built-in ones included; not ok if it does not exist (D-2).
func (t tiers) FindTier(name string) (model.Tier, bool) {
	tier, ok := t[name]
	return tier, ok
}

// CompareTiers is the order in which two tiers are evaluated, whether or not they exist.
func (t tiers) CompareTiers(a, b string) int { return t.compare(a, b) }
