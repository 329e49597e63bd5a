package calc

import (
	"fmt"
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
	if claims := g.ServiceClaims(); len(claims) != 1 {
		t.Fatalf("claims: %v", claims)
	}
	if n := testing.AllocsPerRun(3, func() { g.ServiceClaims() }); n > 100 {
		t.Errorf("%.0f allocations", n)
	}
}
