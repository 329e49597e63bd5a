package calico_test

import (
	"strings"
	"testing"
	"time"
)

// What a tenant writes into one object takes time in proportion to its size, however its lists are made.
func TestLongListsTakeLinearTime(t *testing.T) {
	const n = 200000
	for name, spec := range map[string]string{
		"service accounts": "ingress: [{action: Allow, source: {serviceAccounts: {names: " + list(n, "a%d", 1) + "}}}]",
		"nets":             "ingress: [{action: Allow, source: {nets: " + list(n, "10.0.%d.0/32", 1) + "}}]",
		"ports":            "ingress: [{action: Allow, protocol: TCP, destination: {ports: " + list(n, "p%d", 1) + "}}]",
		"methods":          "ingress: [{action: Allow, http: {methods: " + list(n, "M%d", 1) + "}}]",
		"types":            "types: [" + strings.Repeat("A, ", n/2) + strings.Repeat("Ingress, ", n/2) + "Egress]",
		"hints":            "performanceHints: " + list(n, "h%d", 1),
	} {
		for _, group := range []string{"projectcalico.org/v3", "crd.projectcalico.org/v1"} {
			began := time.Now()
			d := parse(t, group+" NetworkPolicy", "name: a, namespace: shop", spec)
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("%s of %s took %s", name, group, took)
			}
			if len(d.Problems) > 30 {
				t.Errorf("%s of %s: %d problems", name, group, len(d.Problems))
			}
		}
	}
}
