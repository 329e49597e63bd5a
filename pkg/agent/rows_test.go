package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/inspect/rows"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// podsOfTwo is the graph of a node with so many pods, of two namespaces, all of which a rule selects, and the set of these.
func podsOfTwo(t *testing.T, pods int) (*calc.Graph, model.SetID) {
	t.Helper()
	g := calc.New("n")
	updates := []model.Update{model.InSync{}, model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "p"},
		Policy: &model.Policy{Tier: model.TierDefault, Selector: selector.All(), AppliesIngress: true,
			Ingress: []model.Rule{{Action: model.Allow, Source: model.Entity{Selector: selector.Has("app")}}}}}}
	for i := range pods {
		updates = append(updates, model.EndpointUpdate{ID: model.WorkloadID([]string{"shop", "ops"}[i%2], fmt.Sprint("p", i)), Endpoint: &model.Endpoint{
			Node: "n", Iface: fmt.Sprint("cali", i), Labels: map[string]string{"app": "a"}, Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})}}})
	}
	g.Apply(updates)
	for id := range g.Flush().Sets {
		if id != model.SetNodeAddrs && id != model.SetServiceAddrs {
			return g, id
		}
	}
	t.Fatal("no set")
	return nil, ""
}

// The loop answers for one set at a time, and enforces nothing meanwhile. Each member used to be looked for among all pods: with 20,000
// pods in a set and as many in the cluster that took seconds.
func TestASetIsDescribedInProportionToItsMembers(t *testing.T) {
	cost := func(pods int) time.Duration {
		g, id := podsOfTwo(t, pods)
		return testutil.LeastCPUTime(t, func() {
			row := setRow(g, nil, numberedSet{1, id}, g.NamespacesByAddr())
			if row.Members != pods || !slices.Equal(row.Namespaces, []string{"ops", "shop"}) {
				t.Errorf("%d members, of %v", row.Members, row.Namespaces)
			}
		})
	}
	few, many := cost(500), cost(10_000)
	t.Logf("500 pods: %s, 10,000: %s", few, many)
	if many > 100*few {
		t.Errorf("20 times the members take %s, where 500 take %s", many, few)
	}
}

// manyPolicies is the graph of a node with so many pods, to each of which so many policies apply.
func manyPolicies(pods, policies int) *calc.Graph {
	g := calc.New("n")
	updates := []model.Update{model.InSync{}}
	for i := range policies {
		updates = append(updates, model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: fmt.Sprint("p", i)},
			Policy: &model.Policy{Tier: model.TierDefault, Order: float64(i), Selector: selector.All(), AppliesIngress: true, AppliesEgress: true}})
	}
	for i := range pods {
		updates = append(updates, model.EndpointUpdate{ID: model.WorkloadID("shop", fmt.Sprint("p", i)), Endpoint: &model.Endpoint{
			Node: "n", Iface: fmt.Sprint("cali", i), Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})}}})
	}
	g.Apply(updates)
	g.Flush()
	return g
}

// Of the work for show endpoints and show policies, what grows with pods times policies is not done while the loop waits: a tenant can
// have 10,000 policies apply to each of 100 pods.
func TestPoliciesOfEndpointsAreNamedOutsideOfTheLoop(t *testing.T) {
	const many = 2000
	g := manyPolicies(50, many)
	local := g.LocalEndpoints()
	inLoop := testutil.LeastCPUTime(t, func() { endpointRows(local, g, nil, plane{}) })
	list := endpointRows(local, g, nil, plane{})
	after := testutil.LeastCPUTime(t, func() { namePolicies(list, local) })
	for _, row := range list {
		if len(row.Ingress.Policies) != many || row.Egress.Policies[1] != "default/gnp/p1" {
			t.Fatalf("%d policies: %v", len(row.Ingress.Policies), row.Egress.Policies[:2])
		}
	}
	t.Logf("endpoints: %s in the loop, %s after it", inLoop, after)
	if inLoop > after/4 {
		t.Errorf("show endpoints keeps the loop for %s, and takes %s after that", inLoop, after)
	}
	inLoop = testutil.LeastCPUTime(t, func() { rows.ListPolicies(g) })
	after = testutil.LeastCPUTime(t, func() {
		if all := rows.ListPolicies(g).Rows(); all[many-1].Name != fmt.Sprint("p", many-1) || all[0].Ingress != 50 {
			t.Errorf("the first is %v, the last %v", all[0], all[many-1])
		}
	})
	t.Logf("policies: %s in the loop, %s in all", inLoop, after)
	if inLoop > after/4 {
		t.Errorf("show policies keeps the loop for %s of %s", inLoop, after)
	}
}
