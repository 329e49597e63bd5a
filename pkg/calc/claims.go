package calc

import (
	"cmp"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/model"
)

// LostClaim is an address that an endpoint claims and does not own: packets that the endpoint sends from it are spoofed,
// and rules that match the endpoint do not match the address.
type LostClaim struct {
	Endpoint    model.EndpointID
	Local       bool // it is enforced on this node
	Terminating bool
	Addr        netip.Addr
	Why         Loss
	Owner       model.EndpointID // Taken: who has it
	Iface       string           // NotRouted: the interface of the endpoint, and
	RoutedTo    string           // to which workload interface the node routes it; empty: to none
	// Unattached: the endpoint is on no interface (yet), so no program drops what it sends. The graph does not know it; a user of the claim sets it.
	Unattached bool
}

// Loss says why an endpoint does not own an address.
type Loss string

// The reasons, as tools print them.
const (
	NotRouted Loss = "NotRouted" // the node does not route it to the endpoint's interface
	Taken     Loss = "Taken"     // another endpoint owns it
	Disputed  Loss = "Disputed"  // no endpoint owns it: several of the same age claim it
	Reserved  Loss = "Reserved"  // it is an address of a node or a cluster address of a Service
)

// Text is one line for people.
func (l LostClaim) Text() string { return l.text("endpoint " + l.Owner.String()) }

// ForAuthor is Text for users who may see only the objects of the endpoint's namespace: it names none of others. A tenant could claim one
// address after the other to learn whose they are.
func (l LostClaim) ForAuthor() string {
	if l.Owner.Namespace == l.Endpoint.Namespace {
		return l.Text()
	}
	return l.text("a pod of another namespace")
}

func (l LostClaim) text(owner string) string {
	spoofed := "; packets that it sends from this address are dropped as spoofed"
	if l.Unattached {
		spoofed = ""
	}
	switch {
	case l.Why == Taken:
		return fmt.Sprintf("address %s belongs to %s%s", l.Addr, owner, spoofed)
	case l.Why == Reserved:
		return fmt.Sprintf("address %s belongs to a node, or is the cluster address of a Service%s", l.Addr, spoofed)
	case l.Why == Disputed:
		return fmt.Sprintf("address %s is claimed by another endpoint of the same age: neither owns it", l.Addr)
	case l.RoutedTo != "":
		return fmt.Sprintf("address %s is routed to %s and not to its interface %s%s", l.Addr, l.RoutedTo, l.Iface, spoofed)
	}
	return fmt.Sprintf("the node has no route of address %s alone to its interface %s%s", l.Addr, l.Iface, spoofed)
}

// LostClaims returns the claims that lost, of endpoints of any node, by endpoint and address. It looks at contested
// addresses only.
func (t *endpointTable) LostClaims() []LostClaim {
	var all []LostClaim
	for a, of := range t.owners.contests {
		for _, c := range of.claims {
			if c.id == of.owner {
				continue
			}
			l := LostClaim{Endpoint: c.id, Local: c.local, Terminating: c.terminating, Addr: a, Owner: of.owner}
			switch {
			case t.owners.isReserved(a):
				l.Why = Reserved
			case of.owner != model.EndpointID{}:
				l.Why = Taken
			case c.local && t.owners.routes != nil && !t.owners.routed(c, a):
				l.Why, l.Iface, l.RoutedTo = NotRouted, c.iface, t.owners.routes[a]
			default:
				l.Why = Disputed
			}
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(a, b LostClaim) int { return cmp.Or(a.Endpoint.Compare(b.Endpoint), a.Addr.Compare(b.Addr)) })
	return all
}

// ServiceClaim is an external or load-balancer address of a Service that belongs to something else. kube-proxy translates
// it all the same, so policy still judges packets to it by their backend. A claim without an address stands for all
// addresses of a Service whose namespace has too many.
type ServiceClaim struct {
	Service model.ServiceKey
	Addr    netip.Addr
	Of      string // whose it is: "endpoint shop/b", "node n1", "Service shop/db"
}

// Text is one line for people.
func (c ServiceClaim) Text() string { return c.text(c.Of) }

// ForAuthor is as that of LostClaim.
func (c ServiceClaim) ForAuthor() string {
	kind, name, _ := strings.Cut(c.Of, " ")
	switch namespace, _, is := strings.Cut(name, "/"); {
	case !is:
		return c.text("a " + kind)
	case namespace == c.Service.Namespace:
		return c.Text()
	case kind == "endpoint":
		kind = "pod"
	}
	return c.text("a " + kind + " of another namespace")
}

func (c ServiceClaim) text(of string) string {
	if !c.Addr.IsValid() {
		return fmt.Sprintf("the Services of its namespace have more than %d external addresses, or there is no room for more of all namespaces: egress policy must allow "+
			"the external addresses of this Service as well as its backends", MaxExternal)
	}
	return fmt.Sprintf("its external address %s is also the address of %s: kube-proxy sends its traffic to this Service", c.Addr, of)
}

// ServiceClaims yields those of all Services, by Service and address. It may look at every endpoint. The claims are worked out when they are
// read, which any goroutine may do: tenants may have made very many.
func (g *Graph) ServiceClaims() iter.Seq[ServiceClaim] {
	var c serviceClaims
	for key, s := range g.services {
		if g.serviceTable.isOut(key) {
			c.out = append(c.out, key)
			continue
		}
		for _, a := range s.External {
			put(&c.claimants, a, append(c.claimants[a], key))
		}
	}
	g.eachClaimed(c.claimants, func(a netip.Addr, of string, except model.ServiceKey) {
		c.claimed = append(c.claimed, claimed{a, of, except})
	})
	return c.all
}

// serviceClaims are the Services that are left out, those that claim addresses, and whose these are.
type serviceClaims struct {
	out       []model.ServiceKey
	claimants map[netip.Addr][]model.ServiceKey
	claimed   []claimed
}

type claimed struct {
	addr   netip.Addr
	of     string
	except model.ServiceKey // of claimants: whose it is
}

func (c *serviceClaims) all(yield func(ServiceClaim) bool) {
	var all []ServiceClaim
	for _, key := range c.out {
		all = append(all, ServiceClaim{Service: key})
	}
	for _, by := range c.claimed {
		for _, key := range c.claimants[by.addr] {
			if key != by.except {
				all = append(all, ServiceClaim{key, by.addr, by.of})
			}
		}
	}
	slices.SortFunc(all, func(a, b ServiceClaim) int {
		return cmp.Or(cmp.Compare(a.Service.Namespace, b.Service.Namespace), cmp.Compare(a.Service.Name, b.Service.Name),
			a.Addr.Compare(b.Addr), cmp.Compare(a.Of, b.Of))
	})
	for _, claim := range slices.Compact(all) {
		if !yield(claim) {
			return
		}
	}
}

// eachClaimed yields what has one of the addresses, with it. There may be a hundred thousand endpoints that have none of them, so nothing is
// made of those.
func (g *Graph) eachClaimed(claimants map[netip.Addr][]model.ServiceKey, yield func(a netip.Addr, of string, except model.ServiceKey)) {
	ofEndpoints := map[netip.Addr]struct{}{}
	for a := range claimants {
		if g.owners.known[g.owners.key(a)] > 0 {
			ofEndpoints[a] = struct{}{}
		}
	}
	if len(ofEndpoints) > 0 {
		for ep := range g.endpoints.All() {
			for a := range ep.Value.addrs() {
				if _, claimed := ofEndpoints[a]; claimed {
					yield(a, "endpoint "+ep.id().String(), model.ServiceKey{})
				}
			}
		}
	}
	for name, addrs := range g.nodes {
		for _, a := range addrs {
			if len(claimants[a]) > 0 {
				yield(a, "node "+name, model.ServiceKey{})
			}
		}
	}
	for key, s := range g.services {
		for _, a := range s.Cluster {
			if len(claimants[a]) > 0 {
				yield(a, "Service "+key.String(), key)
			}
		}
	}
}
