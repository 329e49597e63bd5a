package calc

import (
	"fmt"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// selecting is a policy of a namespace's pods with so many ingress rules, each about another selector that finds every
// pod there is; first makes them others than those of other policies.
func selecting(namespace, name string, first, rules int, ports ...string) model.PolicyUpdate {
	p := &model.Policy{Tier: model.TierDefault, Order: model.OrderNetworkPolicy, AppliesIngress: true,
		Selector: sel(fmt.Sprintf("projectcalico.org/namespace == %q", namespace))}
	for i := range rules {
		r := model.Rule{Action: model.Allow, Index: i}
		r.Source.Selector = sel(fmt.Sprintf("has(projectcalico.org/namespace) && app != 'x%d'", first+i))
		r.Destination.NamedPorts = ports
		p.Ingress = append(p.Ingress, r)
	}
	return model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindKubernetesNetworkPolicy, Namespace: namespace, Name: name}, Policy: p}
}

// market is a graph with a pod of evil and one of shop on this node, and so many pods elsewhere, in which a namespace may
// find so much, and nothing more for each pod.
func market(t *testing.T, pods, limit int) (*Graph, *dataplane) {
	t.Helper()
	g, dp := New(thisNode), newDataplane()
	g.sets.spending.limit, g.sets.spending.perItem = limit, 0
	updates := []model.Update{pod("evil/m", "10.0.0.1"), pod("shop/a", "10.0.0.2"), model.InSync{}}
	for i := range pods {
		updates = append(updates, pod(fmt.Sprint("other/p", i), fmt.Sprintf("10.1.%d.%d", i/250, 1+i%250), on("node-2")))
	}
	flushed(t, g, dp, updates...)
	return g, dp
}

func flushed(t *testing.T, g *Graph, dp *dataplane, updates ...model.Update) {
	t.Helper()
	g.Apply(updates)
	c := g.Flush()
	if g.HasMore() {
		defer flushed(t, g, dp)
	}
	for id, change := range c.Sets {
		if err := dp.applySet(id, change); err != nil {
			t.Fatal(err)
		}
	}
	checkSpending(t, g)
}

// checkSpending compares what namespaces are charged with what their rules use.
func checkSpending(t tb, g *Graph) {
	t.Helper()
	sums, users := map[string]int{}, map[string]int{}
	for _, d := range g.sets.definitions {
		charged := map[string]bool{}
		for rs := range d.users {
			if users[rs.account()]++; !charged[rs.account()] {
				charged[rs.account()] = true
				sums[rs.account()] += g.sets.spending.by[rs.account()].users[d].weight
			}
		}
	}
	if len(sums) != len(g.sets.spending.by) {
		t.Fatalf("%d namespaces are charged, %d use something", len(g.sets.spending.by), len(sums))
	}
	for namespace, a := range g.sets.spending.by {
		n := 0
		for d, c := range a.users {
			if n += c.rulesets; c.weight < d.weight {
				t.Fatalf("namespace %q is charged %d for a definition that cost %d", namespace, c.weight, d.weight)
			}
		}
		if a.sum != sums[namespace] || n != users[namespace] {
			t.Fatalf("namespace %q is charged %d for %d users, and uses %d with %d", namespace, a.sum, n, sums[namespace], users[namespace])
		}
	}
}

// refusedOf is why ingress policies of an endpoint are refused, by name.
func refusedOf(t *testing.T, g *Graph, name string) string {
	t.Helper()
	ep, ok := g.LocalEndpoint(id(name))
	if !ok {
		t.Fatalf("no endpoint %s", name)
	}
	var all []string
	for _, rules := range allRules(ep.Ingress) {
		if rules.Refused != "" {
			if len(rules.Rules) > 0 || !strings.Contains(rules.Refused, rules.Key.Namespace) {
				t.Errorf("%s: %d rules, refused: %s", rules.Key, len(rules.Rules), rules.Refused)
			}
			all = append(all, rules.Key.Name)
		}
	}
	return strings.Join(all, " ")
}

func wantRefused(t *testing.T, g *Graph, evil, shop string) {
	t.Helper()
	if e, s := refusedOf(t, g, "evil/m"), refusedOf(t, g, "shop/a"); e != evil || s != shop {
		t.Errorf("refused of evil/m: %q, of shop/a: %q; want %q and %q", e, s, evil, shop)
	}
}

// Each selector costs little more than the 102 pods that it finds.
func TestSelectorsOfOneNamespaceFindNoMoreThanTheirShare(t *testing.T) {
	g, dp := market(t, 100, 1000)
	flushed(t, g, dp, selecting("evil", "p", 0, 2), selecting("shop", "p", 1000, 2))
	wantRefused(t, g, "", "")
	before := len(dp.Sets)

	flushed(t, g, dp, selecting("evil", "p", 0, 500))
	wantRefused(t, g, "p", "")
	if len(dp.Sets) != before {
		t.Errorf("%d sets, want the %d of before", len(dp.Sets), before)
	}
	if n := len(g.sets.definitions); n != 4 {
		t.Errorf("%d definitions, want those of what is in force", n)
	}

	// What the refused policy had before may be in force still: its sets follow the pods.
	flushed(t, g, dp, pod("other/new", "10.2.0.1", on("node-2")))
	for id, members := range dp.Sets {
		if !strings.HasPrefix(string(id), "@") && len(members) != 103 {
			t.Errorf("set %s has %d members, want the new pod among them", id, len(members))
		}
	}

	flushed(t, g, dp, selecting("evil", "p", 0, 3))
	wantRefused(t, g, "", "")
	flushed(t, g, dp, model.Absent(selecting("evil", "p", 0, 1)), model.Absent(selecting("shop", "p", 0, 1)))
	if n := len(g.sets.definitions); n != 0 {
		t.Errorf("%d definitions are left", n)
	}
}

// Many policies of one namespace are one; what one of them gives up another one gets.
func TestPoliciesOfANamespaceShareWhatTheyFind(t *testing.T) {
	g, dp := market(t, 100, 600)
	flushed(t, g, dp, selecting("evil", "a", 0, 3), selecting("evil", "b", 10, 3), selecting("evil", "c", 0, 3), selecting("shop", "p", 0, 3))
	wantRefused(t, g, "b", "") // c means what a does
	flushed(t, g, dp, selecting("evil", "a", 0, 1))
	wantRefused(t, g, "b", "")
	flushed(t, g, dp, model.Absent(selecting("evil", "c", 0, 1)))
	wantRefused(t, g, "", "")

	// A policy may come to cost less while the others are charged as much as before: one of them means what it does.
	flushed(t, g, dp, model.Absent(selecting("evil", "b", 0, 1)))
	flushed(t, g, dp, selecting("evil", "d", 20, 5))
	wantRefused(t, g, "d", "")
	flushed(t, g, dp, selecting("evil", "a", 20, 1))
	wantRefused(t, g, "", "")
}

// A policy that was refused because of one that is built after it is tried again when that one gives up something: in its own
// flush, also if both change at once, and also if the other one's last pod leaves the node.
func TestARefusalEndsWithItsCause(t *testing.T) {
	g, dp := market(t, 100, 600)
	flushed(t, g, dp, selecting("evil", "c", 0, 4))
	flushed(t, g, dp, selecting("evil", "a", 10, 3))
	wantRefused(t, g, "a", "")
	flushed(t, g, dp, selecting("evil", "c", 0, 1))
	wantRefused(t, g, "", "")

	flushed(t, g, dp, model.Absent(selecting("evil", "a", 0, 1)), selecting("evil", "c", 0, 4))
	flushed(t, g, dp, selecting("evil", "a", 10, 3), selecting("evil", "c", 0, 1))
	wantRefused(t, g, "", "")

	leaving := selecting("evil", "c", 0, 4)
	leaving.Policy.Selector = sel("projectcalico.org/namespace == 'evil' && app == 'c'")
	flushed(t, g, dp, model.Absent(selecting("evil", "a", 0, 1)), leaving, pod("evil/c", "10.0.0.3", label("app", "c")))
	flushed(t, g, dp, selecting("evil", "a", 10, 3))
	wantRefused(t, g, "a", "")
	flushed(t, g, dp, model.Absent(pod("evil/c", "10.0.0.3")))
	wantRefused(t, g, "", "")
}

// Each selector may find any pod that comes later, so policies of a namespace have a number of them, whatever they find now. What they have
// in common counts once.
func TestPoliciesOfANamespaceReferToSoManySelectors(t *testing.T) {
	g, dp := market(t, 0, 1_000_000)
	g.sets.spending.references = 10
	many := selecting("", "all", 200, 20)
	many.Key.Kind, many.Policy.Selector = model.KindGlobalNetworkPolicy, selector.All()
	flushed(t, g, dp, many, selecting("shop", "p", 0, 10), selecting("evil", "a", 0, 6), selecting("evil", "b", 5, 5), selecting("evil", "c", 0, 10))
	wantRefused(t, g, "", "")
	flushed(t, g, dp, selecting("evil", "b", 5, 6), selecting("shop", "p", 0, 11))
	wantRefused(t, g, "b", "p")
	ep, _ := g.LocalEndpoint(id("evil/m"))
	for _, rules := range allRules(ep.Ingress) {
		if rules.Refused != "" && !strings.Contains(rules.Refused, "too many different selectors, named ports and Services: limit 10") {
			t.Error(rules.Refused)
		}
	}
	flushed(t, g, dp, selecting("evil", "a", 1, 1), selecting("evil", "c", 0, 7), selecting("shop", "p", 0, 10))
	wantRefused(t, g, "b", "") // 0 to 6, and 5 to 10
	flushed(t, g, dp, selecting("evil", "c", 1, 9))
	wantRefused(t, g, "", "")
}

// A rule that names m ports of n peers means n x m combinations, all of which are looked at even where nobody has them.
func TestNamedPortsOfManyPeersAreBounded(t *testing.T) {
	var names []string
	for i := range 500 {
		names = append(names, fmt.Sprintf("port-%d", i))
	}
	g, dp := market(t, 0, 10_000)
	flushed(t, g, dp, selecting("evil", "p", 0, 500, names...), selecting("shop", "p", 0, 5, names[:5]...))
	wantRefused(t, g, "p", "")
	if n := len(g.sets.definitions); n > 100 {
		t.Errorf("%d definitions are left of what was refused", n)
	}
}

// Selectors that find nothing are tried all the same, and cost that.
func TestSelectorsThatFindNothingAreBounded(t *testing.T) {
	p := selecting("evil", "p", 0, 100)
	for i := range p.Policy.Ingress {
		p.Policy.Ingress[i].Source.Selector = sel(fmt.Sprintf("has(projectcalico.org/namespace) && app == 'a' && app != 'x%d' || has(projectcalico.org/namespace) && !has(projectcalico.org/namespace)", i))
	}
	g, dp := market(t, 0, 150)
	flushed(t, g, dp, p)
	wantRefused(t, g, "p", "")
}

// having is a selector of what has a label app and none of so many others, or all of these.
func having(n int, others bool) *selector.Selector {
	all := []*selector.Selector{selector.Has("app")}
	for i := range n {
		other := selector.Has(fmt.Sprint("label-", i))
		if !others {
			other = selector.Not(other)
		}
		all = append(all, other)
	}
	return selector.And(all...)
}

// A selector is parsed once for each name of ports that a rule combines it with, and looked up by its text.
func TestLongSelectorsWithManyPortsAreBounded(t *testing.T) {
	p, ordinary := selecting("evil", "p", 0, 1), selecting("shop", "p", 1000, 1)
	p.Policy.Ingress[0].Source.Selector = nil
	p.Policy.Ingress[0].Destination.Selector = having(2000, true)
	for i := range 2000 {
		name := fmt.Sprintf("port-%d", i)
		p.Policy.Ingress[0].Destination.NamedPorts = append(p.Policy.Ingress[0].Destination.NamedPorts, name)
		ordinary.Policy.Ingress[0].Destination.NamedPorts = append(ordinary.Policy.Ingress[0].Destination.NamedPorts, name)
	}
	g, dp := market(t, 0, 20_000)
	flushed(t, g, dp, p, ordinary)
	wantRefused(t, g, "p", "")
	if n := len(g.sets.definitions); n != 2001 {
		t.Errorf("%d definitions are left, want those of shop/p", n)
	}
}

// A selector of many terms costs more with each group that it is tried with.
func TestLongSelectorsThatAreTriedAreBounded(t *testing.T) {
	g, dp := market(t, 0, 10_000)
	var pods []model.Update
	for i := range 100 {
		pods = append(pods, pod(fmt.Sprint("other/p", i), fmt.Sprintf("10.1.0.%d", 1+i), on("node-2"), label("app", fmt.Sprint(i))))
	}
	long, short := selecting("evil", "p", 0, 1), selecting("shop", "p", 0, 1)
	long.Policy.Ingress[0].Source.Selector = having(6000, false)
	short.Policy.Ingress[0].Source.Selector = having(40, false)
	flushed(t, g, dp, append(pods, long, short)...)
	wantRefused(t, g, "p", "")
}

// The length of a selector costs nothing that is no longer than people write it.
func TestOrdinarySelectorsCostNothingForTheirLength(t *testing.T) {
	var weights []int
	for _, terms := range []int{1, 50} {
		g, dp := market(t, 20, 1000)
		p := selecting("evil", "p", 0, 1)
		flushed(t, g, dp, pod("other/app", "10.3.0.1", label("app", "x")))
		p.Policy.Ingress[0].Source.Selector = having(terms, false)
		flushed(t, g, dp, p)
		wantRefused(t, g, "", "")
		weights = append(weights, g.sets.spending.sumOf("evil"))
	}
	if want := 1 + 1 + 1; weights[0] != want || weights[1] != want { // a group is tried and a pod found
		t.Errorf("charged %v, want %d", weights, want)
	}
}

// Whoever may write policy for all namespaces is no tenant.
func TestPoliciesOfNoNamespaceAreNotBounded(t *testing.T) {
	g, dp := market(t, 100, 1000)
	p := selecting("evil", "p", 0, 50)
	p.Key = model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "p"}
	flushed(t, g, dp, p)
	wantRefused(t, g, "", "")
}
