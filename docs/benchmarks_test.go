package docs

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/margay-project/margay/bench/page"
	"github.com/margay-project/margay/bench/report"
)

// TestBenchmarksAreThoseOfTheRun: the tables of docs/benchmarks.md are made from bench/results/dataplanes.json.
func TestBenchmarksAreThoseOfTheRun(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "bench/results/dataplanes.json"))
	if err != nil {
		t.Fatal(err)
	}
	var results []report.Result
	if err := json.Unmarshal(text, &results); err != nil {
		t.Fatal(err)
	}
	document := documents(t)["docs/benchmarks.md"]
	want, err := page.Put(document, results)
	if err != nil {
		t.Fatal(err)
	}
	if want != document {
		t.Error("docs/benchmarks.md does not have the tables of bench/results/dataplanes.json: go run ./bench/run -group dataplanes writes both")
	}
}
