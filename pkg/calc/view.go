package calc

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// The views below describe the state as of the last Flush, for explain, status and tests. They change nothing, and
// what they return is the caller's unless it is a pointer to a policy.

// LocalEndpoints returns the policy of every endpoint enforced on this node, by id.
func (g *Graph) LocalEndpoints() []*model.EndpointPolicy {
	all := make([]*model.EndpointPolicy, 0, len(g.local.endpoints))
	for _, ep := range g.local.endpoints {
		if ep.policy != nil { // not in sync yet
			all = append(all, ep.policy)
		}
	}
	slices.SortFunc(all, func(a, b *model.EndpointPolicy) int { return a.ID.Compare(b.ID) })
	return all
}

// LocalEndpoint returns the policy of one endpoint; not ok if it is not enforced on this node.
func (g *Graph) LocalEndpoint(id model.EndpointID) (*model.EndpointPolicy, bool) {
	ep := g.local.endpoints[id]
	if ep == nil || ep.policy == nil {
		return nil, false
	}
	return ep.policy, true
}

// FindEndpoint returns an endpoint of any node. Iface is only filled in for endpoints of this one. Of a terminating one
// Addrs are those it has, without those that went to others. Addresses and ports are shared and must not be changed.
func (g *Graph) FindEndpoint(name model.EndpointID) (*model.Endpoint, bool) {
	ep, ok := g.endpoints[name]
	if !ok {
		return nil, false
	}
	value := ep.value()
	value.Addrs = ep.listAddrs()
	return value, true
}

// EndpointByAddr returns the endpoint of any node that has the address; of several, the one with the lowest id. It
// looks at every endpoint.
func (g *Graph) EndpointByAddr(addr netip.Addr) (model.EndpointID, bool) {
	var lowest model.EndpointID
	found := false
	for id, ep := range g.endpoints {
		if ep.hasAddr(addr) && (!found || id.Compare(lowest) < 0) {
			lowest, found = id, true
		}
	}
	return lowest, found
}

// Nodes counts the endpoints by the node they are on. It looks at every endpoint.
func (g *Graph) Nodes() map[string]int {
	count := map[string]int{}
	for _, ep := range g.endpoints {
		count[ep.node.Value()]++
	}
	return count
}

// SetText describes a set to people: `selector app == "db"`, `named port http/tcp 8080 of all()`,
// `service shop/web port 443/tcp`, `service shop/web`. Not ok if there is no such set.
func (g *Graph) SetText(id model.SetID) (string, bool) {
	s, ok := g.sets.byID[id]
	switch {
	case !ok:
		return "", false
	case id == model.SetServiceAddrs:
		return "addresses of all services", true
	case id == model.SetNodeAddrs:
		return "addresses of this node", true
	}
	return s.definition.key.text(s.port), true
}

// SetMembers returns the members of a set, sorted. Not ok if there is no such set.
func (g *Graph) SetMembers(id model.SetID) ([]netip.Prefix, bool) {
	s, ok := g.sets.byID[id]
	if !ok {
		return nil, false
	}
	return s.sorted(), true
}

// SetContains reports whether the address is in a member of the set. A set that does not exist contains nothing.
func (g *Graph) SetContains(id model.SetID, addr netip.Addr) bool {
	s, ok := g.sets.byID[id]
	if !ok {
		return false
	}
	return s.members.contains(addr)
}

// Problem is something in the datastore that is enforced differently from what its author may expect.
type Problem struct {
	Object string // "endpoint shop/db-0", "policy gnp/deny-all"
	Text   string
}

// Problems returns the problems of this node's endpoints, and of all policies, sorted.
func (g *Graph) Problems() []Problem {
	var all []Problem
	for key, p := range g.policies {
		if _, ok := g.tiers[p.tier]; !ok {
			all = append(all, Problem{"policy " + key.String(), fmt.Sprintf(
				"tier %q does not exist: evaluated after all other tiers, with default action Deny", p.tier)})
		}
	}
	for iface, ids := range g.local.claims {
		text := "it has no interface: not enforced"
		if iface != "" {
			text = fmt.Sprintf("interface %s belongs to %s: not enforced", iface, ids[0])
			ids = ids[1:]
		}
		for _, id := range ids {
			all = append(all, Problem{"endpoint " + id.String(), text})
		}
	}
	for id, ep := range g.local.endpoints {
		for _, p := range ep.group.parents {
			if g.profiles[p.name] == nil {
				all = append(all, Problem{"endpoint " + id.String(), fmt.Sprintf("profile %s does not exist", p.name)})
			}
		}
	}
	all = append(all, g.sharedAddrs()...)
	slices.SortFunc(all, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Text, b.Text))
	})
	return all
}

// sharedAddrs are the addresses of this node's endpoints that another endpoint of any node has, too: a packet from or
// to one is in the sets of both. It looks at every endpoint.
func (g *Graph) sharedAddrs() []Problem {
	local := map[netip.Addr]model.EndpointID{}
	for id, ep := range g.local.endpoints {
		for a := range ep.addrs() {
			if other, taken := local[a]; !taken || id.Compare(other) < 0 {
				local[a] = id
			}
		}
	}
	var all []Problem
	for id, ep := range g.endpoints {
		for a := range ep.addrs() {
			if owner, ok := local[a]; ok && owner != id {
				all = append(all, Problem{"endpoint " + id.String(), fmt.Sprintf("address %s is also that of endpoint %s", a, owner)})
			}
		}
	}
	return all
}
