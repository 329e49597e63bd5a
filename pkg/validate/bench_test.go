package validate_test

import (
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
