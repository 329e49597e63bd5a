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

// What a tenant writes into one object takes time in proportion to its size, however its lists are made: ten times the entries cost some
// ten times as much, and a hundred times if each is compared with each.
func TestLongListsTakeLinearTime(t *testing.T) {
	const few, many, most = 4_000, 40_000, 40
	for name, spec := range map[string]func(n int) string{
		"service accounts": func(n int) string {
			return "ingress: [{action: Allow, source: {serviceAccounts: {names: " + distinct(n, "a%d") + "}}}]"
		},
		"nets": func(n int) string {
			return "ingress: [{action: Allow, source: {nets: " + distinct(n, "'2001:db8::%x/128'") + "}}]"
		},
		"ports": func(n int) string {
			return "ingress: [{action: Allow, protocol: TCP, destination: {ports: " + distinct(n, "p%d") + "}}]"
		},
		"methods": func(n int) string { return "ingress: [{action: Allow, http: {methods: " + distinct(n, "M%d") + "}}]" },
		"types": func(n int) string {
			return "types: [" + strings.Repeat("A, ", n/2) + strings.Repeat("Ingress, ", n/2) + "Egress]"
		},
		"hints": func(n int) string { return "performanceHints: " + distinct(n, "h%d") },
	} {
		for _, group := range []string{"projectcalico.org/v3", "crd.projectcalico.org/v1"} {
			cost := func(n int) time.Duration {
				text := spec(n)
				return testutil.LeastCPUTime(t, func() {
					if d := parse(t, group+" NetworkPolicy", "name: a, namespace: shop", text); len(d.Problems) > 30 {
						t.Errorf("%s of %s: %d problems", name, group, len(d.Problems))
					}
				})
			}
			if little, much := cost(few), cost(many); much > most*little {
				t.Errorf("%s of %s: %d entries took %v, %d took %v", name, group, few, little, many, much)
			} else {
				t.Logf("%s of %s: %v, %v", name, group, little, much)
			}
		}
	}
}
