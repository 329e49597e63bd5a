package calico_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/validate"
)

// policies is the number of policies of a large cluster.
const policies = 10000

// benchmarkPolicy has five rules of the usual kinds.
func benchmarkPolicy(i int) string {
	return fmt.Sprintf(`apiVersion: projectcalico.org/v3
kind: NetworkPolicy
metadata: {name: p%d, namespace: ns-%d}
spec:
  tier: app
  order: %d
  selector: app == 'a%d' && has(version)
  ingress:
  - {action: Allow, protocol: TCP, source: {selector: "role == 'front'"}, destination: {ports: [80, 443, '9000:9099']}}
  - {action: Allow, source: {namespaceSelector: "team == 't%d'", selector: has(app)}}
  - {action: Deny, source: {nets: [10.%d.0.0/16], notNets: [10.%d.1.0/24]}}
  egress:
  - {action: Allow, protocol: UDP, destination: {selector: "k8s-app == 'kube-dns'", namespaceSelector: all(), ports: [53]}}
  - {action: Pass}
`, i, i/100, i, i%20, i%50, i%256, i%256)
}

// BenchmarkText reads all policies of a large cluster from manifests.
func BenchmarkText(b *testing.B) {
	var text strings.Builder
	for i := range policies {
		text.WriteString(benchmarkPolicy(i) + "---\n")
	}
	all := []byte(text.String())
	b.SetBytes(int64(len(all)))
	b.ReportAllocs()
	for b.Loop() {
		docs := kinds.Parse("a.yaml", all)
		if len(docs) != policies || !docs[policies-1].OK || len(docs[0].Problems) > 0 {
			b.Fatalf("%d documents, %v", len(docs), docs[0].Problems)
		}
	}
}

// BenchmarkCluster converts all policies of a large cluster as an API server sends them.
func BenchmarkCluster(b *testing.B) {
	all := make([]*unstructured.Unstructured, 0, policies)
	for i := range policies {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(benchmarkPolicy(i)), &u.Object); err != nil {
			b.Fatal(err)
		}
		all = append(all, u)
	}
	var convert kinds.Kind
	for _, k := range kinds.Served(validate.Pods{}) {
		if k.Ref == "NetworkPolicy.projectcalico.org" {
			convert = k
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, u := range all {
			if _, problems, ok := convert.Convert(u); !ok || len(problems) > 0 {
				b.Fatal(problems)
			}
		}
	}
}
