package validate_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/validate"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An API server stores 780,000 rules without a field in 1.5 MiB, and 390,000 peers in three protocols. No kernel's table holds as many rules, so
// they are not made.
func TestANetworkPolicyOfTooManyRulesAllowsNothing(t *testing.T) {
	const most = 1<<16 - 1
	anywhere, pods := `{}`, `{"podSelector":{}}`
	protocols := `"ports":[{"protocol":"TCP"},{"protocol":"UDP"},{"protocol":"SCTP"},{"port":80}]`
	list := func(n int, of string) string { return strings.TrimSuffix(strings.Repeat(of+",", n), ",") }
	for _, test := range []struct {
		name, spec      string
		ingress, egress int  // rules
		closed          bool // it allows nothing
	}{
		{"as many rules as there may be", `"ingress":[` + list(most, anywhere) + `]`, most, 0, false},
		{"one more", `"ingress":[` + list(most+1, anywhere) + `]`, 0, 0, true},
		{"as many as are stored", `"ingress":[` + list(780_000, anywhere) + `]`, 0, 0, true},
		{"for each peer and protocol", `"ingress":[{` + protocols + `,"from":[` + list(most/3, pods) + `]}]`, most, 0, false},
		{"one peer more", `"ingress":[{` + protocols + `,"from":[` + list(most/3+1, pods) + `]}]`, 0, 0, true},
		{"as many peers as are stored", `"ingress":[{` + protocols + `,"from":[` + list(390_000, pods) + `]}]`, 0, 0, true},
		{"egress", `"ingress":[{}],"egress":[` + list(most+1, anywhere) + `]`, 0, 0, true},
		{"in a direction that it is not about", `"policyTypes":["Ingress"],"ingress":[{}],"egress":[` + list(most+1, anywhere) + `]`, 1, 0, false},
		{"each direction for itself", `"ingress":[` + list(most, anywhere) + `],"egress":[` + list(most, anywhere) + `]`, most, most, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			var p validate.StoredNetworkPolicy
			if err := p.UnmarshalJSON([]byte(`{"metadata":{"name":"p","namespace":"shop"},"spec":{"podSelector":{},` + test.spec + `}}`)); err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			u, problems, ok := validate.NetworkPolicyOfServer(&p)
			runtime.ReadMemStats(&after)
			if !ok || u.Policy == nil {
				t.Fatalf("it is not used: %v", problems)
			}
			if i, e := len(u.Policy.Ingress), len(u.Policy.Egress); i != test.ingress || e != test.egress {
				t.Errorf("%d rules for ingress and %d for egress, want %d and %d", i, e, test.ingress, test.egress)
			}
			if !u.Policy.AppliesIngress {
				t.Error("it does not isolate any more")
			}
			said := false
			for _, problem := range problems {
				said = said || problem.Severity == validate.RulesLeftOut && strings.Contains(problem.Reason, fmt.Sprintf("the limit is %d", most))
			}
			if said != test.closed {
				t.Errorf("problems %v", problems)
			}
			if grew := (after.TotalAlloc - before.TotalAlloc) >> 20; test.closed && grew > 200 { // the checks of peers take a part of it, which is garbage at once
				t.Errorf("%d MiB were allocated, although no rules are made", grew)
			}
		})
	}
}

// A manifest is judged as the object that an API server makes of it.
func TestAManifestOfTooManyRulesAllowsNothing(t *testing.T) {
	np := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "shop"}}
	np.Spec.Ingress = make([]networkingv1.NetworkPolicyIngressRule, 1<<16)
	u, _, ok := validate.NetworkPolicy(np)
	if !ok || u.Policy == nil || len(u.Policy.Ingress) > 0 || !u.Policy.AppliesIngress {
		t.Errorf("ok %v, policy %+v", ok, u.Policy)
	}
}
