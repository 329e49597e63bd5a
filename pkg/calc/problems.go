package calc

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// ProblemKind is the kind of a problem with an object.
type ProblemKind uint8

const (
	MissingTier      ProblemKind = iota + 1 // a policy names a tier that does not exist
	InterfaceTaken                          // an endpoint's interface is another's, or it has none: not enforced
	MissingNamespace                        // the Namespace of an endpoint does not exist
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
	// Namespace is the object's; empty: it has none.
	Namespace string
	Object    string // "endpoint shop/db-0", "policy gnp/deny-all", "Service shop/db"
	Text      string // for people only
}

// Problems returns the problems of this node's endpoints, and of all policies, sorted. That a ServiceAccount does not
// exist is none: it only gives labels, and outside a cluster users do not write one for every pod.
func (g *Graph) Problems() []Problem {
	all := g.interfaceProblems()
	for p := range g.policies.All() {
		if _, ok := g.tiers[p.tier]; !ok {
			all = append(all, Problem{Kind: MissingTier, Namespace: p.key.Namespace, Object: "policy " + p.key.String(), Text: fmt.Sprintf(
				"tier %q does not exist: evaluated after all other tiers, with default action Deny", p.tier)})
		}
	}
	for id, node := range g.unknown {
		if g.isLocal(node) {
			all = append(all, endpointProblem(UnknownEndpoint, id, fmt.Sprintf("endpoints of this kind (%s) are not enforced", id.Kind)))
		}
	}
	for id, ep := range g.local.endpoints {
		for name := range ep.Group().Parents() {
			if g.profiles.Get(name) == nil && !model.IsServiceAccountProfile(name) {
				all = append(all, missingProfile(id, name))
			}
		}
	}
	for _, l := range g.LostClaims() {
		// Its interface goes before a terminating endpoint does, and another may have its address then.
		if !l.Terminating {
			all = append(all, endpointProblem(AddressLost, l.Endpoint, l.Text()))
		}
	}
	for _, c := range g.ServiceClaims() {
		kind := AddressUsurped
		if !c.Addr.IsValid() {
			kind = LeftOut
		}
		all = append(all, Problem{Kind: kind, Namespace: c.Service.Namespace, Object: "Service " + c.Service.String(), Text: c.Text()})
	}
	for namespace, name := range g.prefixes.leftOut() {
		all = append(all, Problem{Kind: LeftOut, Namespace: namespace, Object: "NetworkSet " + namespace + "/" + name, Text: fmt.Sprintf(
			"the network sets of its namespace have more than %d prefixes: this one counts as empty", g.prefixes.most)})
	}
	for service := range g.sets.services.backends.leftOut() {
		all = append(all, Problem{Kind: LeftOut, Namespace: service.Namespace, Object: "Service " + service.String(), Text: fmt.Sprintf(
			"the EndpointSlices of its namespace have more than %d pairs of an address and a port, or those of this Service more than %d ports, and not all count: "+
				"rules that allow by it do not match the others, rules that deny by it match all ports of their addresses", g.sets.services.backends.pairs.most, g.sets.services.backends.most)})
	}
	for p := range g.sets.selected.found.crowded() {
		all = append(all, p.problem(g.sets.selected.found.most))
	}
	for name, namespaces := range crowdedNames(g.sets.definitions) {
		for namespace := range namespaces {
			all = append(all, Problem{Kind: LeftOut, Namespace: namespace, Object: "Namespace " + namespace, Text: fmt.Sprintf(
				"its pods give the port name %s more than %d numbers, and only the lowest count: rules that allow by this name do not match "+
					"the others, rules that deny by it match all ports of their pods", name, g.sets.selected.numbers.most)})
		}
	}
	slices.SortFunc(all, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Text, b.Text))
	})
	return all
}

// interfaceProblems are those of endpoints that have no interface of their own.
func (t *endpointTable) interfaceProblems() []Problem {
	var all []Problem
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
				all = append(all, endpointProblem(InterfaceTaken, c.id, text))
			}
		}
	}
	return all
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
