package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/model"
)

// withStaged gives a pod's ingress a staged policy with so many rules, each about another CIDR list.
func withStaged(e *model.EndpointPolicy, first, rules int) *model.EndpointPolicy {
	draft := *pod("x", "x", first, rules).Ingress.Tiers[0].Policies[0]
	draft.Key, draft.Staged = model.PolicyKey{Kind: model.KindStagedNetworkPolicy, Namespace: e.ID.Namespace, Name: "draft"}, true
	as, ingress := *e, *e.Ingress
	ingress.Tiers = []model.TierPolicy{{Name: "default", Default: model.Deny,
		Policies: append([]*model.PolicyRules{&draft}, e.Ingress.Tiers[0].Policies...)}}
	as.Ingress = &ingress
	return &as
}

// wantStaged checks how many sets the shadow of an endpoint has, -1: it is not bound, and what is said of it.
func (w *tenants) wantStaged(id string, sets int, failure string) {
	w.t.Helper()
	namespace, name, _ := strings.Cut(id, "/")
	ep, got := model.WorkloadID(namespace, name), -1
	if b, ok := w.k.bound[ep.Shadow()]; ok {
		got = len(w.k.tables[b.Ingress].Program.Sets)
	}
	if got != sets {
		w.t.Errorf("staged %s: %d sets, want %d", id, got, sets)
	}
	if text := fmt.Sprint(StagedNotEvaluated(w.Compiler)[ep].Failed); (failure == "") != (text == "<nil>") || !strings.Contains(text, failure) {
		w.t.Errorf("staged %s: error %s, want one about %q", id, text, failure)
	}
}

// TestStagedPoliciesTakeNothingFromEnforcedOnes: they have a quarter of the limits, and what enforced policy has is not less
// for them.
func TestStagedPoliciesTakeNothingFromEnforcedOnes(t *testing.T) {
	w := newTenants(t, Budget{Namespace: Cost{Sets: 20}})
	w.update(withStaged(pod("evil", "m", 1, 2), 2, 3), pod("shop", "a", 3, 9))
	w.want("evil/m", 2, "")
	w.wantStaged("evil/m", 5, "")
	// The second one is over the limit for staged policies. Enforced policy has all of its own.
	w.update(withStaged(pod("evil", "n", 4, 18), 5, 3))
	w.want("evil/n", 18, "")
	w.wantStaged("evil/n", -1, "limit 5")
	w.update(withStaged(pod("evil", "n", 4, 18), 6, 500))
	w.want("evil/n", 18, "")
	w.want("evil/m", 2, "")
	w.want("shop/a", 9, "")
	w.wantStaged("evil/m", 5, "")
	w.wantStaged("shop/a", -1, "")
	// Without it, nothing is said any more.
	w.update(pod("evil", "n", 4, 18), pod("evil", "m", 1, 2))
	w.wantStaged("evil/n", -1, "")
	w.wantStaged("evil/m", -1, "")
}

// TestChangesDoNotWaitForStagedPolicies: a plan with changes makes nothing of shadows.
func TestChangesDoNotWaitForStagedPolicies(t *testing.T) {
	w := newTenants(t, Budget{})
	e := withStaged(pod("shop", "a", 1, 2), 2, 3)
	p := w.Update(model.Changes{InSync: true, Endpoints: map[model.EndpointID]*model.EndpointPolicy{e.ID: e}})
	if len(p.Bind) != 1 || p.Bind[0].Endpoint.ID != e.ID || !p.More {
		t.Errorf("the plan with the change binds %v, more %t", p.Bind, p.More)
	}
	if !StagedNotEvaluated(w.Compiler)[e.ID].Pending {
		t.Error("staged policies that no plan has made yet are not pending")
	}
	if p = w.Update(model.Changes{InSync: true}); len(p.Bind) != 1 || p.Bind[0].Endpoint.ID != e.ID.Shadow() {
		t.Errorf("the plan behind it binds %v", p.Bind)
	}
	if StagedNotEvaluated(w.Compiler)[e.ID].Pending {
		t.Error("staged policies that a plan has made are still pending")
	}
}
