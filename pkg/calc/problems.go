package calc

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"github.com/margay-project/margay/pkg/keyset"
	"github.com/margay-project/margay/pkg/model"
)

// ProblemKind is the kind of a problem with an object.
type ProblemKind uint8

const (
	MissingTier      ProblemKind = iota + 1 // a policy names a tier that does not exist
	InterfaceTaken                          // an endpoint's interface is another's, or it has none: not enforced
	MissingNamespace                        // the Namespace of an endpoint or a policy does not exist
	MissingProfile                          // an endpoint names a profile that does not exist, and stands for no Kubernetes object
	AddressLost                             // an endpoint claims an address that it does not own
	AddressUsurped                          // a Service claims an address that is something else's
	UnknownEndpoint                         // an endpoint of a kind that is not calculated: not enforced
	LeftOut                                 // of the objects of its namespace that there is no room for
)

// Problem is something in the datastore that is enforced differently from what its author may expect.
type Problem struct {
	Kind     ProblemKind
	Endpoint model.EndpointID // that it is about; zero: another object
	Policy   model.PolicyKey  // likewise
	// Namespace is the object's; empty: it has none.
	Namespace string
	Object    string // "endpoint shop/db-0", "policy gnp/deny-all", "Service shop/db"
	Text      string // for people only
}

// Odd are the problems of one moment, without their words: a tenant may have made very many, and the words take longer than finding
// the problems. It belongs to any goroutine.
type Odd struct {
	// Unattached are local endpoints on no interface. The graph does not know them; set them before Problems.
	Unattached map[model.EndpointID]bool

	list   []func() Problem
	claims iter.Seq[ServiceClaim] // nil: none
}

// ofServices are those of Services.
func (o *Odd) ofServices() []ServiceClaim {
	if o.claims == nil {
		return nil
	}
	return slices.Collect(o.claims)
}

func (o *Odd) add(problem func() Problem) { o.list = append(o.list, problem) }

// Problems returns them in words, sorted.
func (o *Odd) Problems() []Problem {
	all := make([]Problem, 0, len(o.list))
	for _, problem := range o.list {
		all = append(all, problem())
	}
	for _, c := range o.ofServices() {
		kind := AddressUsurped
		if !c.Addr.IsValid() {
			kind = LeftOut
		}
		all = append(all, Problem{Kind: kind, Namespace: c.Service.Namespace, Object: "Service " + c.Service.String(), Text: c.Text()})
	}
	slices.SortFunc(all, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Text, b.Text))
	})
	return all
}

// Len is how many there are.
func (o *Odd) Len() int { return len(o.list) + len(o.ofServices()) }

// Problems returns the problems of this node's endpoints, and of all policies, sorted. That a ServiceAccount does not
// exist is none: it only gives labels, and outside a cluster users do not write one for every pod.
func (g *Graph) Problems() []Problem { return g.Odd().Problems() }

// Odd returns what Problems does, for somebody for whom others do not have to wait.
func (g *Graph) Odd() *Odd {
	o := &Odd{claims: g.ServiceClaims()}
	g.policyTable.addOdd(o)
	g.endpointTable.addOdd(o)
	for _, p := range g.AwaitedPods() {
		o.add(func() Problem {
			return endpointProblem(MissingNamespace, p.ID, fmt.Sprintf("Namespace %s is not known, so policies that its labels decide may be missing: the pod is closed until it is", p.Namespace))
		})
	}
	for id, ep := range g.local.endpoints {
		for name := range ep.Group().Parents() {
			if g.profiles.Get(name) == nil && !model.IsServiceAccountProfile(name) {
				o.add(func() Problem { return missingProfile(id, name) })
			}
		}
	}
	g.addLeftOut(o)
	return o
}

// addOdd adds the policies whose tier does not exist, or whose Namespace.
func (t *policyTable) addOdd(o *Odd) {
	for _, key := range nowhere(&t.policies, &t.profiles) {
		o.add(func() Problem {
			return Problem{Kind: MissingNamespace, Policy: key, Namespace: key.Namespace, Object: key.ObjectText(), Text: fmt.Sprintf(
				"Namespace %s does not exist: a policy applies to pods of its own namespace only", key.Namespace)}
		})
	}
	for p := range t.policies.All() {
		if _, ok := t.tiers[p.tier]; ok {
			continue
		}
		key, tier := p.key, p.tier
		o.add(func() Problem {
			return Problem{Kind: MissingTier, Policy: key, Namespace: key.Namespace, Object: "policy " + key.String(), Text: fmt.Sprintf(
				"tier %q does not exist: evaluated after all other tiers, with default action Deny", tier)}
		})
	}
}

// nowhere returns the policies whose Namespace does not exist. Without any Namespace that is no mistake: policies alone are checked, or a
// datastore has none.
func nowhere(policies *keyset.Set[model.PolicyKey, policy], profiles *keyset.Set[string, profile]) (keys []model.PolicyKey) {
	exists, some := map[string]bool{"": true}, false
	for p := range profiles.All() {
		if namespace, ok := model.NamespaceOfProfile(p.name); ok {
			exists[namespace], some = true, true
		}
	}
	if !some {
		return nil
	}
	for p := range policies.All() {
		if !exists[p.key.Namespace] {
			keys = append(keys, p.key)
		}
	}
	return keys
}

// addOdd adds the endpoints of kinds that are not calculated, those without an interface of their own, and those that have lost an address.
func (t *endpointTable) addOdd(o *Odd) {
	for id, node := range t.unknown {
		if t.isLocal(node) {
			o.add(func() Problem {
				return endpointProblem(UnknownEndpoint, id, fmt.Sprintf("endpoints of this kind (%s) are not enforced", id.Kind))
			})
		}
	}
	for iface, claims := range t.owners.interfaces {
		holder, text := t.owners.interfaces.holder(iface), "it has no interface: not enforced"
		switch {
		case holder != model.EndpointID{}:
			text = fmt.Sprintf("interface %s belongs to %s, which is older: not enforced", iface, holder)
		case iface != "":
			text = fmt.Sprintf("interface %s is claimed by another endpoint of the same age: not enforced", iface)
		}
		for _, c := range claims {
			if c.id != holder {
				o.add(func() Problem { return endpointProblem(InterfaceTaken, c.id, text) })
			}
		}
	}
	for _, l := range t.LostClaims() {
		// Its interface goes before a terminating endpoint does, and another may have its address then.
		if !l.Terminating {
			o.add(func() Problem {
				l.Unattached = o.Unattached[l.Endpoint]
				return endpointProblem(AddressLost, l.Endpoint, l.Text())
			})
		}
	}
}

// addLeftOut adds the objects that are past a limit of their namespace, but for Services with too many addresses.
func (g *Graph) addLeftOut(o *Odd) {
	leftOut := func(namespace, object string, text func() string) {
		o.add(func() Problem { return Problem{Kind: LeftOut, Namespace: namespace, Object: object, Text: text()} })
	}
	prefixes := g.prefixes.most
	for namespace, name := range g.prefixes.leftOut() {
		leftOut(namespace, "NetworkSet "+namespace+"/"+name, func() string {
			return fmt.Sprintf("the network sets of its namespace have more than %d prefixes, and this one is left out: %s", prefixes, failsClosed)
		})
	}
	const together = "network sets and EndpointSlices of all namespaces have more than %d prefixes that rules refer to, "
	common := g.room.common
	for service := range g.sets.services.withoutRoom() {
		leftOut(service.Namespace, "Service "+service.String(), func() string {
			return fmt.Sprintf(together+"and not all addresses of this Service count: rules that allow by it do not match the others, "+
				"rules that deny by it match prefixes around them", common)
		})
	}
	if g.room.short {
		for id, ns := range g.networkSets {
			if ns.hasNoRoom() && !g.room.hasFor(&ns.item) {
				leftOut(id.Namespace, "NetworkSet "+id.String(), func() string {
					return fmt.Sprintf(together+"and this one is left out: %s", common, failsClosed)
				})
			}
		}
	}
	pairs, ports := g.sets.services.backends.pairs.most, g.sets.services.backends.most
	for service := range g.sets.services.backends.leftOut() {
		leftOut(service.Namespace, "Service "+service.String(), func() string {
			return fmt.Sprintf("the EndpointSlices of its namespace have more than %d pairs of an address and a port, or those of this Service more than %d ports, and not all count: "+
				"rules that allow by it do not match the others, rules that deny by it match all ports of their addresses", pairs, ports)
		})
	}
	found := g.sets.selected.found.most
	for p := range g.sets.selected.found.crowded() {
		o.add(func() Problem { return p.problem(found) })
	}
	numbers := g.sets.selected.numbers.most
	for name, namespaces := range crowdedNames(g.sets.definitions) {
		for namespace := range namespaces {
			leftOut(namespace, "Namespace "+namespace, func() string {
				return fmt.Sprintf("its pods give the port name %s more than %d numbers, and only the lowest count: rules that allow by this name do not match "+
					"the others, rules that deny by it match all ports of their pods", name, numbers)
			})
		}
	}
}

func missingProfile(id model.EndpointID, name string) Problem {
	if namespace, ok := model.NamespaceOfProfile(name); ok {
		return endpointProblem(MissingNamespace, id, fmt.Sprintf("Namespace %s does not exist: traffic that no policy decides is denied", namespace))
	}
	return endpointProblem(MissingProfile, id, fmt.Sprintf("profile %s does not exist", name))
}

func endpointProblem(k ProblemKind, id model.EndpointID, text string) Problem {
	return Problem{Kind: k, Endpoint: id, Namespace: id.Namespace, Object: "endpoint " + id.String(), Text: text}
}
