package suggest_test

import (
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/suggest"
)

func TestNearestIsWhatWasMeant(t *testing.T) {
	kinds := []string{"Namespace", "Node", "Pod", "Service", "ServiceAccount", "NetworkPolicy"}
	fields := []string{"podSelector", "policyTypes", "ingress", "egress"}
	for _, test := range []struct {
		name       string
		candidates []string
		want       string
	}{
		{"NetworkPolcy", kinds, "NetworkPolicy"},
		{"networkpolicy", kinds, "NetworkPolicy"},
		{"NetworkPolicies", kinds, "NetworkPolicy"},
		{"Pods", kinds, "Pod"},
		{"Role", kinds, ""},
		{"Deployment", kinds, ""},
		{"Job", kinds, ""},
		{"form", []string{"from", "ports"}, "from"},
		{"ingres", fields, "ingress"},
		{"Ingress", fields, "ingress"},
		{"podSelecter", fields, "podSelector"},
		{"replicas", fields, ""},
		{"", kinds, ""},
		{"x", nil, ""},
	} {
		got, ok := suggest.Nearest(test.name, test.candidates)
		if got != test.want || ok != (test.want != "") {
			t.Errorf("%q: got %q, %v, want %q", test.name, got, ok, test.want)
		}
		if q := suggest.Question(test.name, test.candidates); (q != "") != ok || !strings.Contains(q, test.want) {
			t.Errorf("%q: question %q", test.name, q)
		}
	}
	if got, _ := suggest.Nearest("ALL", []string{"aLL", "ALL"}); got != "ALL" {
		t.Errorf("the same name in the right case is %q", got)
	}
}
