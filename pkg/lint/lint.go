// Package lint finds valid policy that most likely does not say what its author meant: policies that select no pod,
// peers that select nothing, port names that no pod has, rules that can never decide, networks of one family only, and
// networks of Services, whose addresses are translated before policy judges. It also finds policy that a node refuses to enforce on one of
// its pods. It is pure and takes every pod of the cluster for local.
package lint

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/compile/plan"
	"github.com/margay-project/margay/pkg/model"
)

// Finding is one thing worth a look.
type Finding struct {
	Policy    model.PolicyKey
	Rule      int             // the API object's rule; -1: the policy as a whole
	Direction model.Direction // of the rule
	// Endpoint is the pod whose policy its node does not enforce. Then there is no Policy. Zero: the finding is about a policy.
	Endpoint model.EndpointID
	Text     string
}

// Object names what the finding is about: "gnp/deny-all", "knp/shop/db#ingress[0]", "pod shop/db-0".
func (f Finding) Object() string {
	if f.Endpoint != (model.EndpointID{}) {
		return "pod " + f.Endpoint.String()
	}
	if f.Rule < 0 {
		return f.Policy.String()
	}
	return fmt.Sprintf("%s#%s[%d]", f.Policy, f.Direction, f.Rule)
}

// Check returns the findings about the objects that the updates leave present, sorted by policy and rule, without
// duplicates. Without any pod there is nothing to compare policies with: none. The limits of one pod count, and those of a namespace's pods on a
// node and of all pods there, but for the size of tables.
func Check(updates []model.Update) []Finding {
	return check(updates, plan.Options{Budget: plan.Budget{Direction: plan.PerDirection}})
}

func check(updates []model.Update, o plan.Options) []Finding {
	l := &linter{graph: calc.New(""), found: map[Finding]bool{}}
	l.graph.Apply(append(slices.Clone(updates), model.InSync{}))
	l.changes = l.graph.Flush()
	for _, u := range updates {
		l.last(u)
	}
	if len(l.endpoints) == 0 {
		return nil
	}
	l.applies, l.replaces, l.exposed = map[model.PolicyKey]bool{}, map[model.PolicyKey]bool{}, map[port]bool{}
	l.active = l.activePolicies()
	for _, p := range l.active {
		l.applies[p.rules.Key] = true
	}
	for _, ep := range l.endpoints {
		expose(l.exposed, ep)
	}
	translated := l.translatedAddrs()
	for key, p := range l.policies {
		l.policy(key, p, translated)
	}
	for _, p := range l.active {
		l.resolved(p)
	}
	compiled := l.compile(o)
	defer compiled.Close()
	l.shadowed(compiled, l.refused(compiled))
	l.crowded(compiled, o)
	return l.sorted()
}

// HasEndpoints reports whether the updates leave any pod present: without, Check finds nothing.
func HasEndpoints(updates []model.Update) bool {
	l := &linter{}
	for _, u := range updates {
		l.last(u)
	}
	return len(l.endpoints) > 0
}

type linter struct {
	graph     *calc.Graph
	changes   model.Changes
	policies  map[model.PolicyKey]*model.Policy
	endpoints map[model.EndpointID]*model.Endpoint
	nodes     map[string]*model.Node
	active    []activePolicy
	applies   map[model.PolicyKey]bool // to some pod
	replaces  map[model.PolicyKey]bool // staged ones that would take an enforced policy away from some pod and not apply to it
	exposed   map[port]bool
	found     map[Finding]bool
}

// activePolicy is one direction of a policy that applies to a pod.
type activePolicy struct {
	rules     *model.PolicyRules
	direction model.Direction
	families  [2]bool       // of the addresses of its pods: IPv4, IPv6
	exposed   map[port]bool // by its pods
}

func (l *linter) add(key model.PolicyKey, d model.Direction, rule int, format string, args ...any) {
	l.found[Finding{Policy: key, Rule: rule, Direction: d, Text: fmt.Sprintf(format, args...)}] = true
}

func (l *linter) last(u model.Update) {
	if l.policies == nil {
		l.policies, l.endpoints = map[model.PolicyKey]*model.Policy{}, map[model.EndpointID]*model.Endpoint{}
		l.nodes = map[string]*model.Node{}
	}
	switch u := u.(type) {
	case model.PolicyUpdate:
		if l.policies[u.Key] = u.Policy; u.Policy == nil {
			delete(l.policies, u.Key)
		}
	case model.EndpointUpdate:
		if l.endpoints[u.ID] = u.Endpoint; u.Endpoint == nil || u.Endpoint.HostNetwork {
			delete(l.endpoints, u.ID)
		}
	case model.NodeUpdate:
		if l.nodes[u.Name] = u.Node; u.Node == nil {
			delete(l.nodes, u.Name)
		}
	}
}

// activePolicies are the policies that apply to pods, each direction once. Those that would only take an enforced policy away from a pod
// are left out: they have no rules there, and need not select the pod.
func (l *linter) activePolicies() []activePolicy {
	at := map[*model.PolicyRules]int{}
	var list []activePolicy
	for _, ep := range l.graph.LocalEndpoints() {
		for _, d := range []*model.DirectionPolicy{ep.Ingress, ep.Egress} {
			for _, t := range d.Tiers {
				for _, p := range t.Policies {
					if p.StagedAction == model.StagedDelete {
						l.replaces[p.Key] = true
						continue
					}
					i, ok := at[p]
					if !ok {
						i = len(list)
						at[p] = i
						list = append(list, activePolicy{rules: p, direction: d.Direction, exposed: map[port]bool{}})
					}
					expose(list[i].exposed, l.endpoints[ep.ID])
					for _, a := range ep.Addrs {
						list[i].families[family(a.Is6())] = true
					}
				}
			}
		}
	}
	return list
}

func family(v6 bool) int {
	if v6 {
		return 1
	}
	return 0
}

func (l *linter) sorted() []Finding {
	var list []Finding
	for f := range l.found {
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b Finding) int {
		return cmp.Or(a.Endpoint.Compare(b.Endpoint), cmp.Compare(a.Policy.String(), b.Policy.String()), cmp.Compare(a.Direction, b.Direction),
			cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Text, b.Text))
	})
	return list
}
