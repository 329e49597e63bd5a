package corpus_test

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/internal/corpus"
)

// TestRandomModelsInKernel asks the BPF programs. They are given a part of the packets: each is a system call.
func TestRandomModelsInKernel(t *testing.T) {
	engines := kernels(t)
	pairs := 0
	rapid.Check(t, func(t *rapid.T) {
		updates := corpus.DrawModel(t)
		probes := corpus.DrawProbes(t, updates)
		probes = every(probes, len(probes)/200+1)
		err := corpus.Agree(engines, updates, probes)
		var d *corpus.Disagreement
		if errors.As(err, &d) {
			text, err := corpus.Format("Random counter-example (§7).", updates, d.Probe.Line(d.Want))
			if err != nil {
				t.Fatal(err)
			}
			t.Fatalf("%v\n%s", d, text)
		}
		if err != nil {
			t.Fatal(err)
		}
		pairs += len(probes)
	})
	t.Logf("%d policy-packet pairs", pairs)
}

// every returns one in n.
func every(probes []corpus.Probe, n int) []corpus.Probe {
	var out []corpus.Probe
	for i := 0; i < len(probes); i += n {
		out = append(out, probes[i])
	}
	return out
}
