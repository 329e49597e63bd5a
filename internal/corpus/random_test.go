package corpus

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/model"
)

// A failure prints the shrunk counter-example as a corpus file, and the seed to run it again with.

func TestRandomModelsAreJudgedAlike(t *testing.T) {
	engines := compiledEngines()
	pairs := 0
	rapid.Check(t, func(t *rapid.T) {
		updates := DrawModel(t)
		probes := DrawProbes(t, updates)
		agree(t, engines, updates, probes, func(line string) []byte {
			text, err := Format("Random counter-example (§7).", updates, line)
			if err != nil {
				t.Fatal(err)
			}
			return text
		})
		pairs += len(probes)
	})
	logPairs(t, pairs)
}

// logPairs fails if no packet was judged: then the engines agree on nothing.
func logPairs(t *testing.T, pairs int) {
	t.Helper()
	if t.Logf("%d policy-packet pairs", pairs); pairs == 0 {
		t.Error("no packet was judged")
	}
}

// agree fails with a corpus file, made by file, that shows the disagreement.
func agree(t *rapid.T, engines []Engine, updates []model.Update, probes []Probe, file func(line string) []byte) {
	err := Agree(engines, updates, probes)
	var d *Disagreement
	switch {
	case errors.As(err, &d):
		t.Fatalf("%v\n%s", d, file(d.Probe.Line(d.Want)))
	case err != nil:
		t.Fatalf("%v\n%s", err, file("# no line"))
	}
}

func TestFormatAndParseAreInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		updates := DrawModel(t)
		text, err := Format("§7", updates)
		if err != nil {
			t.Fatal(err)
		}
		c, err := parse("random.txtar", text, nil)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		again, err := Format("§7", c.Updates)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(text), string(again)); diff != "" {
			t.Fatal(diff)
		}
		a, b := &Oracle{}, &Oracle{}
		if err := a.Load(updates); err != nil {
			t.Fatal(err)
		}
		if err := b.Load(c.Updates); err != nil {
			t.Fatal(err)
		}
		for _, p := range DrawProbes(t, updates) {
			was, _ := a.Judge(p.Endpoint, p.Direction, p.Packet)
			is, _ := b.Judge(p.Endpoint, p.Direction, p.Packet)
			if diff := cmp.Diff(Describe(was), Describe(is)); diff != "" {
				t.Fatal(diff)
			}
		}
	})
}

func TestRandomNetworkPoliciesAreJudgedAlike(t *testing.T) {
	engines := compiledEngines()
	pairs := 0
	rapid.Check(t, func(t *rapid.T) {
		k := DrawKubernetes(t)
		docs, err := Documents(k)
		if err != nil {
			t.Fatal(err)
		}
		pairs += judgedAlike(t, engines, docs, "Random counter-example (§11).", k.Allows)
	})
	logPairs(t, pairs)
}

// judgedAlike judges random packets by the engines and by an evaluator of the objects that the documents hold. It returns the
// number of pairs.
func judgedAlike(t *rapid.T, engines []Engine, docs [][]byte, doc string,
	allows func(model.EndpointID, model.Direction, model.Packet) bool) int {
	file := func(line string) []byte { return FormatYAML(doc, docs, line) }
	updates := parseDocuments(t, docs)
	probes := DrawProbes(t, updates)
	agree(t, engines, updates, probes, file)
	cluster := &Oracle{}
	if err := cluster.Load(updates); err != nil {
		t.Fatal(err)
	}
	for _, p := range probes {
		got, _ := cluster.Judge(p.Endpoint, p.Direction, p.Packet)
		if want := allows(p.Endpoint, p.Direction, p.Packet); got.Allow != want {
			t.Fatalf("by the objects allow is %v, by the model %v\n%s", want, got.Allow, file(p.Line(got)))
		}
	}
	return len(probes)
}

// parseDocuments converts manifests as an agent would; all of them must be usable.
func parseDocuments(t *rapid.T, docs [][]byte) []model.Update {
	var updates []model.Update
	for _, d := range docs {
		for _, doc := range kinds.Parse("random.yaml", d) {
			if !doc.OK {
				t.Fatalf("%v\n%s", doc.Problems, d)
			}
			updates = append(updates, doc.Updates...)
		}
	}
	return append(updates, model.InSync{})
}

// TestRandomChangesEndWhereTheyShould leads loaded engines from one random state to another in random steps.
func TestRandomChangesEndWhereTheyShould(t *testing.T) {
	pairs := 0
	rapid.Check(t, func(t *rapid.T) {
		from, to := DrawModel(t), DrawModel(t)
		steps := DrawChange(t, from, to)
		probes := DrawProbes(t, to)
		changed := []Engine{&changing{Compiled{}, from, steps}, &changing{Compiled{Wide: true}, from, steps}, &changing{Compiled{Interpret: true}, from, steps}}
		if err := Agree(changed, to, probes); err != nil {
			t.Fatal(err)
		}
		pairs += len(probes)
	})
	logPairs(t, pairs)
}

// changing is an engine that arrives at its state in steps from another.
type changing struct {
	Compiled
	from  []model.Update
	steps [][]model.Update
}

func (c *changing) Load([]model.Update) error {
	if err := c.Compiled.Load(c.from); err != nil {
		return err
	}
	for _, step := range c.steps {
		if err := c.Change(step); err != nil {
			return err
		}
	}
	return c.Finish()
}
