package validate_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/kinds"
)

func BenchmarkParse(b *testing.B) {
	one, err := os.ReadFile("testdata/seed/networkpolicies.yaml")
	if err != nil {
		b.Fatal(err)
	}
	text := []byte(strings.Repeat(string(one)+"\n---\n", 500))
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if docs := kinds.Parse("a.yaml", text); len(docs) != 1000 {
			b.Fatalf("%d documents", len(docs))
		}
	}
}

// BenchmarkParseLarge parses the policy of a tenant that writes as much into one as there is room for.
func BenchmarkParseLarge(b *testing.B) {
	var text strings.Builder
	text.WriteString("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: large, namespace: tenant}\n" +
		"spec: {podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress], ingress: [\n")
	for i := range 8000 {
		fmt.Fprintf(&text, "{from: [{ipBlock: {cidr: 172.16.%d.%d/32}}], ports: [{protocol: TCP, port: %d}]},\n", i>>8, i&255, 1+i)
	}
	text.WriteString("]}\n")
	b.SetBytes(int64(text.Len()))
	b.ReportAllocs()
	for b.Loop() {
		if docs := kinds.Parse("a.yaml", []byte(text.String())); len(docs) != 1 || !docs[0].OK {
			b.Fatalf("%d documents: %v", len(docs), docs[0].Problems)
		}
	}
}
