package e2e

import (
	"slices"
	"testing"

	"github.com/margay-project/margay/internal/corpus"
	"github.com/margay-project/margay/internal/testutil"
)

// What may be set: to play every n-th case only, counted from another one, and all with NodePorts.
const (
	corpusEachEnv = "MARGAY_E2E_CORPUS_EACH"
	corpusFromEnv = "MARGAY_E2E_CORPUS_FROM"
)

// stages is how many stages of the corpus there are side by side. A stage waits most of the time: for denied packets not to arrive, and for
// agents to believe that an object is missing.
const stages = 2

// TestCorpusOverSockets is the corpus' engine of real traffic: every case whose objects a folder of manifests may
// hold is put before two agents, and each of its checks is tried from the real source to the real destination. A denial proves
// something only if the same packet would get through without policy, so that is tried as well. The cases
// are shared out between stages, which have nothing in common.
func TestCorpusOverSockets(t *testing.T) {
	testutil.Privileged(t)
	testutil.RequireCommand(t, "iptables-restore")
	cases, err := corpus.Load("../corpus")
	if err != nil {
		t.Fatal(err)
	}
	cases = slices.DeleteFunc(cases, func(c corpus.Case) bool { return c.Unplayed(false) != "" })
	if len(cases) < 400 {
		t.Errorf("%d cases, want at least 400", len(cases))
	}
	each, n := testutil.Number(t, corpusEachEnv, 1), testutil.Number(t, corpusFromEnv, 0)
	cases = slices.DeleteFunc(cases, func(c corpus.Case) bool {
		n++
		return n%each != 0 && !slices.ContainsFunc(c.Checks, func(k corpus.Check) bool { return k.NodePort })
	})
	alike := slices.Concat(corpus.SameButForPolicy(cases)...) // a stage keeps what several cases have in common
	checks := 0
	for _, c := range cases {
		checks += len(c.Checks)
	}
	t.Logf("%d cases, %d checks", len(cases), checks)
	for share := range slices.Chunk(alike, max(1, (len(alike)+stages-1)/stages)) {
		t.Run("from "+share[0].Name, func(t *testing.T) {
			t.Parallel()
			newStage(t).play(t, share)
		})
	}
}

// play plays the cases one after the other, and what they deny without policy.
func (s *stage) play(t *testing.T, cases []corpus.Case) {
	for _, group := range corpus.SameButForPolicy(cases) {
		var denied []corpus.Check
		for _, c := range group {
			t.Run(c.Name, func(t *testing.T) { s.run(t, c) })
			denied = append(denied, corpus.Denied(c.Checks)...)
		}
		t.Run("without policy of "+group[0].Name, func(t *testing.T) { s.runWithoutPolicy(t, group[0], denied) })
	}
}

// run puts the case on the stage and tries each of its checks.
func (s *stage) run(t *testing.T, c corpus.Case) {
	s.plug(t, c, c.Checks)
	if len(c.Problems) > 0 { // no earlier case may have left a good version of what is rejected here
		s.apply(t, nil)
	}
	for _, step := range c.Steps() {
		s.apply(t, step)
	}
	s.awaitPods(t)
	s.try(t, c.Checks, func(k corpus.Check) bool { return k.Allow })
}

// runWithoutPolicy demands that what policy denies gets through without.
func (s *stage) runWithoutPolicy(t *testing.T, c corpus.Case, denied []corpus.Check) {
	s.plug(t, c, denied)
	s.apply(t, c.WithoutPolicy())
	s.awaitPods(t)
	for some := range slices.Chunk(denied, 50) {
		s.try(t, some, func(corpus.Check) bool { return true })
	}
}
