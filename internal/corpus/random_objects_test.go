package corpus

import (
	"testing"

	"pgregory.net/rapid"
)

// Random clusters with Calico's kinds are judged alike by all engines, and by an evaluator that reads the objects itself.
func TestRandomObjectsAreJudgedAlike(t *testing.T) {
	engines := compiledEngines()
	pairs := 0
	rapid.Check(t, func(t *rapid.T) {
		o := DrawObjects(t)
		docs, err := ObjectDocuments(o)
		if err != nil {
			t.Fatal(err)
		}
		file := func(line string) []byte { return FormatYAML("Random counter-example (§7).", docs, line) }
		updates := parseDocuments(t, docs)
		probes := DrawProbes(t, updates)
		agree(t, engines, updates, probes, file)
		cluster := &Oracle{}
		if err := cluster.Load(updates); err != nil {
			t.Fatal(err)
		}
		for _, p := range probes {
			got, _ := cluster.Judge(p.Endpoint, p.Direction, p.Packet)
			if want := o.Allows(p.Endpoint, p.Direction, p.Packet); got.Allow != want {
				t.Fatalf("by the objects allow is %v, by the model %v\n%s", want, got.Allow, file(p.Line(got)))
			}
		}
		pairs += len(probes)
	})
	t.Logf("%d policy-packet pairs", pairs)
}
