package calc

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// A ServiceAccount that has very many labels costs about the same with 1,000 pods that differ as with one. Before, each of its labels
// was looked at for each of these pods, and one write of 500 KB delayed all other changes for 5 s.
func TestLabelsOfAServiceAccountCostNothingForEachPod(t *testing.T) {
	const labels, many, most = 5000, 1000, 20
	account := func(value string) model.ProfileUpdate {
		m := map[string]string{}
		for i := range labels {
			m[fmt.Sprint("pcsa.label-", i)] = value
		}
		return model.ProfileUpdate{Name: "ksa.evil.a", Profile: &model.Profile{Labels: m}}
	}
	cost := func(pods int) time.Duration {
		g, dp := New(thisNode), newDataplane()
		updates := []model.Update{account("1"), model.InSync{}}
		for i := range pods {
			u := pod("evil/p", fmt.Sprintf("10.1.%d.%d", i>>8, i&255), on("node-2"))
			u.ID.Name = fmt.Sprint("p", i)
			u.Endpoint.Labels = map[string]string{"app": fmt.Sprint(i)}
			u.Endpoint.Profiles = []string{"kns.evil", "ksa.evil.a"}
			updates = append(updates, u)
		}
		flushed(t, g, dp, updates...)
		n := 0
		return testutil.LeastCPUTime(t, func() {
			n++
			flushed(t, g, dp, account(fmt.Sprint("of-", n)))
		})
	}
	one, all := cost(1), cost(many)
	t.Logf("one pod: %s, %d: %s", one, many, all)
	if all > most*one {
		t.Errorf("a change of the labels costs %s with %d pods and %s with one", all, many, one)
	}
}

// A tenant changes one of many policies that apply to each of its pods. They are sorted once, not for each pod. Before, 10,000 policies
// and 100 pods took 1.5 s for each change.
func TestManyPoliciesOfManyPodsAreSortedOnce(t *testing.T) {
	const policies, many, most = 3000, 120, 50
	evil := func(i int, action model.Action) model.PolicyUpdate {
		return model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: "evil", Name: fmt.Sprint("policy-", i)},
			Policy: &model.Policy{Tier: model.TierDefault, Order: 1000, Selector: selector.NotEqual("app", fmt.Sprint(i)),
				AppliesIngress: true, Ingress: []model.Rule{{Action: action}}}}
	}
	cost := func(pods int) time.Duration {
		g, dp := New(thisNode), newDataplane()
		updates := []model.Update{model.InSync{}}
		for i := range policies {
			updates = append(updates, evil(i, model.Allow))
		}
		for i := range pods { // each without one of the policies
			u := pod("evil/p", fmt.Sprintf("10.1.%d.%d", i>>8, i&255))
			u.ID.Name, u.Endpoint.Iface = fmt.Sprint("p", i), fmt.Sprint("cali", i)
			u.Endpoint.Labels = map[string]string{"app": fmt.Sprint(i)}
			updates = append(updates, u)
		}
		flushed(t, g, dp, updates...)
		n := 0
		return testutil.LeastCPUTime(t, func() {
			n++
			g.Apply([]model.Update{evil(policies-1, []model.Action{model.Allow, model.Deny}[n%2])})
			if got := len(g.Flush().Endpoints); got != pods {
				t.Errorf("%d endpoints, want %d", got, pods)
			}
		})
	}
	one, all := cost(1), cost(many)
	t.Logf("one pod: %s, %d: %s", one, many, all)
	if all > most*one {
		t.Errorf("a change of a policy costs %s with %d pods and %s with one", all, many, one)
	}
}

// Agents ask for the claims of Services every two seconds, whose authors may write the address of any pod.
func TestAClaimOfAServiceCostsNothingForEachPod(t *testing.T) {
	const pods = 10_000
	g := New(thisNode)
	g.Apply(benchCluster(pods))
	g.Apply([]model.Update{model.ServiceUpdate{Key: model.ServiceKey{Namespace: "evil", Name: "s"},
		Service: &model.Service{External: benchPod(5, pods).Endpoint.Addrs[:1]}}})
	g.Flush()
	if claims := slices.Collect(g.ServiceClaims()); len(claims) != 1 {
		t.Fatalf("claims: %v", claims)
	}
	if n := testing.AllocsPerRun(3, func() { g.ServiceClaims() }); n > 100 {
		t.Errorf("%.0f allocations", n)
	}
}

// Tenants can make very many problems: here policies of a tier that does not exist, and Services with the address of a pod. An agent's loop
// looks for the claims of Services every two seconds, and for all problems when margay show asks. Their words, and the order, are for others to make.
func TestProblemsAreFoundFasterThanWordsForThem(t *testing.T) {
	const many, most, mostClaims = 20_000, 3, 2 // idle they are 8 and 5; with words on the loop both were 1
	g := New(thisNode)
	updates := []model.Update{model.InSync{}, namespace("shop"), pod("shop/a", "10.0.0.2")}
	for i := range many {
		p := policyOf("p", "all()")
		p.Key.Name, p.Policy.Tier = fmt.Sprint("p", i), "nosuch"
		updates = append(updates, p, model.ServiceUpdate{Key: model.ServiceKey{Namespace: fmt.Sprint("evil-", i%10), Name: fmt.Sprint("s", i)},
			Service: &model.Service{External: addrs("10.0.0.2")}})
	}
	g.Apply(updates)
	g.Flush()
	if n := g.Odd().Len(); n != 2*many || len(g.Problems()) != n {
		t.Fatalf("%d problems, want %d", n, 2*many)
	}
	found := testutil.LeastCPUTime(t, func() { g.Odd() })
	words := testutil.LeastCPUTime(t, func() { g.Problems() })
	claims := testutil.LeastCPUTime(t, func() { g.ServiceClaims() })
	texts := testutil.LeastCPUTime(t, func() { _ = slices.Collect(g.ServiceClaims()) })
	t.Logf("problems: %s, in words %s; claims of Services: %s, in order %s", found, words, claims, texts)
	if most*found > words || mostClaims*claims > texts {
		t.Errorf("problems take %s, and %s with words; claims of Services %s, and %s in order", found, words, claims, texts)
	}
}
