package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/calc"
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
