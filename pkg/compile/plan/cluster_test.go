package plan

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/model"
)

// cluster is a desired state, as the calculation graph would hold it.
type cluster struct {
	sets      map[model.SetID][]netip.Prefix // all there are, whether a rule refers to them or not
	endpoints map[model.EndpointID]*model.EndpointPolicy
	services  []netip.Prefix
	nodes     []netip.Prefix
}

func newCluster() *cluster {
	return &cluster{sets: map[model.SetID][]netip.Prefix{}, endpoints: map[model.EndpointID]*model.EndpointPolicy{}}
}

// ifaces are the endpoints by their interfaces.
func (c *cluster) ifaces() map[string]model.EndpointID {
	all := map[string]model.EndpointID{}
	for id, e := range c.endpoints {
		all[e.Iface] = id
	}
	return all
}

func (c *cluster) clone() *cluster {
	return &cluster{maps.Clone(c.sets), maps.Clone(c.endpoints), slices.Clone(c.services), slices.Clone(c.nodes)}
}

// active returns the sets that rules refer to, and the reserved ones.
func (c *cluster) active() map[model.SetID][]netip.Prefix {
	in := map[model.SetID][]netip.Prefix{}
	for _, e := range c.endpoints {
		for _, p := range []*model.DirectionPolicy{e.Ingress, e.Egress} {
			eachSide(p, func(s *model.Side) {
				for _, id := range setsOf(s) {
					in[id] = c.sets[id]
				}
			})
		}
	}
	if c.services != nil {
		in[model.SetServiceAddrs] = c.services
	}
	if c.nodes != nil {
		in[model.SetNodeAddrs] = c.nodes
	}
	return in
}

func eachSide(p *model.DirectionPolicy, f func(*model.Side)) {
	each := func(policies []*model.PolicyRules) {
		for _, policy := range policies {
			for i := range policy.Rules {
				f(&policy.Rules[i].Source)
				f(&policy.Rules[i].Destination)
			}
		}
	}
	for _, tier := range p.Tiers {
		each(tier.Policies)
	}
	each(p.Profiles)
}

func setsOf(s *model.Side) []model.SetID {
	all := slices.Concat(s.In, s.NotIn)
	for _, m := range []*model.PortMatch{s.Ports, s.NotPorts} {
		if m != nil {
			for _, n := range m.Named {
				all = append(all, n.Set)
			}
		}
	}
	return all
}

// changes returns the difference from an older state; from nil: everything.
func (c *cluster) changes(old *cluster) model.Changes {
	if old == nil {
		old = newCluster()
	}
	ch := model.Changes{
		Endpoints: map[model.EndpointID]*model.EndpointPolicy{}, Sets: map[model.SetID]*model.SetChange{}, InSync: true,
	}
	for id, e := range c.endpoints {
		if old.endpoints[id] != e {
			ch.Endpoints[id] = e
		}
	}
	for id := range old.endpoints {
		if c.endpoints[id] == nil {
			ch.Endpoints[id] = nil
		}
	}
	before, now := old.active(), c.active()
	for id, was := range before {
		if _, ok := now[id]; !ok {
			ch.Sets[id] = &model.SetChange{Added: without(c.sets[id], was), Removed: without(was, c.sets[id]), Gone: true}
		}
	}
	for id, members := range now {
		was, ok := before[id]
		s := &model.SetChange{Added: without(members, was), Removed: without(was, members)}
		if !ok || len(s.Added)+len(s.Removed) > 0 {
			ch.Sets[id] = s
		}
	}
	return ch
}

// without returns the distinct elements of a that are not in b.
func without(a, b []netip.Prefix) (out []netip.Prefix) {
	for _, p := range a {
		if !slices.Contains(b, p) && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

var everyone = append(slices.Clone(policytest.Remotes), policytest.Addrs("10.0.0.1", "fd00::1", "10.0.0.11", "fd00::11", "10.0.0.12", "fd00::12")...)

// mutate changes the state at random. Policies are drawn from the pool or anew.
func (c *cluster) mutate(t *rapid.T, pool []*model.DirectionPolicy) {
	for range rapid.IntRange(1, 4).Draw(t, "mutations") {
		switch rapid.IntRange(0, 6).Draw(t, "mutation") {
		case 0, 1, 2:
			id := policytest.GenSet.Draw(t, "set")
			c.sets[id] = drawMembers(t)
		case 3, 4, 5:
			c.mutateEndpoint(t, pool)
		case 6:
			c.services, c.nodes = drawHosts(t, "services"), drawHosts(t, "nodes")
		}
	}
}

func drawMembers(t *rapid.T) []netip.Prefix {
	return policytest.DrawSome(t, "members", 1, 6, rapid.Custom(func(t *rapid.T) netip.Prefix {
		if rapid.IntRange(1, 4).Draw(t, "net") == 1 {
			return rapid.SampledFrom(policytest.CIDRs).Draw(t, "cidr")
		}
		return host(rapid.SampledFrom(everyone).Draw(t, "member"))
	}))
}

func drawHosts(t *rapid.T, label string) []netip.Prefix {
	return policytest.DrawSome(t, label, 2, 3, rapid.Map(rapid.SampledFrom(everyone), host))
}

func (c *cluster) mutateEndpoint(t *rapid.T, pool []*model.DirectionPolicy) {
	n := rapid.IntRange(0, 2).Draw(t, "endpoint")
	id := model.WorkloadID("ns", fmt.Sprint("pod", n))
	if c.endpoints[id] != nil && rapid.IntRange(0, 3).Draw(t, "leaves") == 0 {
		delete(c.endpoints, id)
		return
	}
	e := &model.EndpointPolicy{ID: id, Iface: fmt.Sprint("cali", n)}
	e.Addrs = policytest.Addrs([][]string{{"10.0.0.1", "fd00::1"}, {"10.0.0.11", "fd00::11"}, {"10.0.0.12"}, {"fd00::12"}}[rapid.IntRange(n, n+1).Draw(t, "addrs")]...)
	// What an endpoint gets another loses: an address has one owner.
	for _, other := range c.endpoints {
		if other.ID == id {
			continue
		}
		left := slices.DeleteFunc(slices.Clone(other.Addrs), func(a netip.Addr) bool { return slices.Contains(e.Addrs, a) })
		if len(left) != len(other.Addrs) {
			changed := *other
			changed.Addrs = left
			c.endpoints[other.ID] = &changed
		}
	}
	of := func(d model.Direction) *model.DirectionPolicy {
		if old := c.endpoints[id]; old != nil && rapid.Bool().Draw(t, "keep") {
			return policyOf(old, d)
		}
		return rapid.SampledFrom(slices.DeleteFunc(slices.Clone(pool), func(p *model.DirectionPolicy) bool {
			return p.Direction != d
		})).Draw(t, "policy")
	}
	e.Ingress, e.Egress = of(model.Ingress), of(model.Egress)
	c.endpoints[id] = e
}

// drawPool draws policies: large ones, which refer to all sets, or small ones, between which sets come and go.
func drawPool(t *rapid.T) (pool []*model.DirectionPolicy) {
	large := rapid.Bool().Draw(t, "large policies")
	for i := range 6 {
		p := &model.DirectionPolicy{}
		if large {
			p = policytest.DrawPolicy(t)
		} else {
			p.Tiers = []model.TierPolicy{{Name: "t", Default: model.Deny, Policies: []*model.PolicyRules{drawSmall(t)}}}
		}
		p.Direction = model.Direction(i % 2)
		pool = append(pool, p)
	}
	return pool
}

func drawSmall(t *rapid.T) *model.PolicyRules {
	p := &model.PolicyRules{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: fmt.Sprint("p", rapid.IntRange(0, 9).Draw(t, "name"))}}
	for i := range rapid.IntRange(1, 2).Draw(t, "rules") {
		side := model.Side{}
		switch rapid.IntRange(0, 3).Draw(t, "side") {
		case 0, 1:
			side.In = []model.SetID{policytest.GenSet.Draw(t, "in")}
		case 2:
			side.NotIn = []model.SetID{policytest.GenSet.Draw(t, "not in")}
		case 3:
			side.Nets = []netip.Prefix{rapid.SampledFrom(policytest.CIDRs).Draw(t, "net")}
		}
		r := model.MatchRule{Action: rapid.SampledFrom([]model.Action{model.Allow, model.Deny}).Draw(t, "action"), Index: i}
		if rapid.Bool().Draw(t, "source") {
			r.Source = side
		} else {
			r.Destination = side
		}
		p.Rules = append(p.Rules, r)
	}
	return p
}
