package suggest_test

import (
	"fmt"
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

func TestEditsAreCounted(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0}, {"abc", "acb", 1}, {"form", "from", 1}, {"kitten", "sitting", 3},
		{"ingres", "ingress", 1}, {"abcd", "badc", 2}, {"ca", "abc", 3},
	} {
		if got := suggest.Edits(test.a, test.b); got != test.want {
			t.Errorf("%q to %q: %d edits, want %d", test.a, test.b, got, test.want)
		}
	}
}

// BenchmarkNearest is the search for a name among the pods of a very large namespace.
func BenchmarkNearest(b *testing.B) {
	var names []string
	for i := range 100_000 {
		names = append(names, fmt.Sprintf("web-frontend-6d5f7c9b8-%05x", i))
	}
	for b.Loop() {
		suggest.Nearest("web-frontend-6d5f7c9b8-zzzzz", names)
	}
}
