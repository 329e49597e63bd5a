package calico_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
)

// distinct is a list of n entries that differ.
func distinct(n int, format string) string {
	entries := make([]string, n)
	for i := range entries {
		entries[i] = fmt.Sprintf(format, i)
	}
	return "[" + strings.Join(entries, ", ") + "]"
}

// What a tenant writes into one object takes time in proportion to its size, however its lists are made.
func TestLongListsTakeLinearTime(t *testing.T) {
	const n = 100000
	for name, spec := range map[string]string{
		"service accounts": "ingress: [{action: Allow, source: {serviceAccounts: {names: " + distinct(n, "a%d") + "}}}]",
		"nets":             "ingress: [{action: Allow, source: {nets: " + distinct(n, "'2001:db8::%x/128'") + "}}]",
		"ports":            "ingress: [{action: Allow, protocol: TCP, destination: {ports: " + distinct(n, "p%d") + "}}]",
		"methods":          "ingress: [{action: Allow, http: {methods: " + distinct(n, "M%d") + "}}]",
		"types":            "types: [" + strings.Repeat("A, ", n/2) + strings.Repeat("Ingress, ", n/2) + "Egress]",
		"hints":            "performanceHints: " + distinct(n, "h%d"),
	} {
		for _, group := range []string{"projectcalico.org/v3", "crd.projectcalico.org/v1"} {
			began := testutil.CPUTime(t)
			d := parse(t, group+" NetworkPolicy", "name: a, namespace: shop", spec)
			if took := testutil.CPUTime(t) - began; took > 10*time.Second {
				t.Errorf("%s of %s took %s", name, group, took)
			}
			if len(d.Problems) > 30 {
				t.Errorf("%s of %s: %d problems", name, group, len(d.Problems))
			}
		}
	}
}
