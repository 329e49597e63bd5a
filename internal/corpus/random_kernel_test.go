package corpus_test

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/internal/corpus"
	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/model"
)

// TestRandomModelsInKernel asks the BPF programs. They are given a part of the packets: each is a system call.
func TestRandomModelsInKernel(t *testing.T) {
	inKernel(t, func(t *rapid.T) ([]model.Update, func(line string) []byte) {
		updates := corpus.DrawModel(t)
		return updates, func(line string) []byte {
			text, err := corpus.Format("Random counter-example (§7).", updates, line)
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
	})
}

// TestRandomObjectsInKernel asks them of clusters with objects of all kinds.
func TestRandomObjectsInKernel(t *testing.T) {
	inKernel(t, func(t *rapid.T) ([]model.Update, func(line string) []byte) {
		docs, err := corpus.ObjectDocuments(corpus.DrawObjects(t))
		if err != nil {
			t.Fatal(err)
		}
		var updates []model.Update
		for _, d := range docs {
			for _, doc := range kinds.Parse("random.yaml", d) {
				if !doc.OK {
					t.Fatalf("%v\n%s", doc.Problems, d)
				}
				updates = append(updates, doc.Updates...)
			}
		}
		return append(updates, model.InSync{}), func(line string) []byte { return corpus.FormatYAML("Random counter-example (§7).", docs, line) }
	})
}

// inKernel compares the programs with the oracle. draw returns a state, and a function that makes a corpus file of it.
func inKernel(t *testing.T, draw func(*rapid.T) ([]model.Update, func(line string) []byte)) {
	engines := kernels(t)
	pairs := 0
	rapid.Check(t, func(t *rapid.T) {
		updates, file := draw(t)
		probes := corpus.DrawProbes(t, updates)
		probes = every(probes, len(probes)/200+1)
		err := corpus.Agree(engines, updates, probes)
		var d *corpus.Disagreement
		if errors.As(err, &d) {
			t.Fatalf("%v\n%s", d, file(d.Probe.Line(d.Want)))
		}
		if err != nil {
			t.Fatal(err)
		}
		pairs += len(probes)
	})
	if t.Logf("%d policy-packet pairs", pairs); pairs == 0 {
		t.Error("no packet was judged")
	}
	for _, e := range engines {
		if k, ok := e.(*corpus.Kernel); ok {
			denied, allowed := k.StagedDifferences()
			t.Logf("%s: staged policies would have denied %d packets that are allowed, and allowed %d", k.Name(), denied, allowed)
		}
	}
}

// every returns one in n.
func every(probes []corpus.Probe, n int) []corpus.Probe {
	var out []corpus.Probe
	for i := 0; i < len(probes); i += n {
		out = append(out, probes[i])
	}
	return out
}
