package corpus

import (
	"testing"

	"pgregory.net/rapid"
)

// manyPairs are asked of random clusters with objects of all kinds, in every run.
const manyPairs = 100_000

// Random clusters with Calico's kinds are judged alike by all engines, and by an evaluator that reads the objects itself.
func TestRandomObjectsAreJudgedAlike(t *testing.T) {
	engines := compiledEngines()
	pairs := 0
	for pairs < manyPairs && !t.Failed() {
		rapid.Check(t, func(t *rapid.T) {
			o := DrawObjects(t)
			docs, err := ObjectDocuments(o)
			if err != nil {
				t.Fatal(err)
			}
			pairs += judgedAlike(t, engines, docs, "Random counter-example (§7).", o.Allows)
		})
	}
	logPairs(t, pairs)
}
