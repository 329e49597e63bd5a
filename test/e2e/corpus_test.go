package e2e

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/corpus"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/model"
)

// patience of one packet of the corpus that must get through, and of one that must not.
const (
	allowedWithin = 5 * time.Second
	deniedFor     = 250 * time.Millisecond
)

// TestCorpusOverSockets is the corpus' engine of real traffic: every case that is made of Kubernetes objects alone is
// put before two agents, and each of its checks is tried from the real source to the real destination. A denial proves
// something only if the same packet would get through without policy, so that is tried as well.
func TestCorpusOverSockets(t *testing.T) {
	testutil.Privileged(t)
	testutil.RequireCommand(t, "iptables-restore")
	cases, err := corpus.Load("../corpus")
	if err != nil {
		t.Fatal(err)
	}
	cases = slices.DeleteFunc(cases, func(c corpus.Case) bool { return c.Kubernetes == nil })
	s := newStage(t)
	checks := 0
	for _, group := range sameButForPolicy(cases) {
		var denied []corpus.Check
		for _, c := range group {
			t.Run(c.Name, func(t *testing.T) { s.run(t, c) })
			checks += len(c.Checks)
			denied = append(denied, slices.DeleteFunc(slices.Clone(c.Checks), func(k corpus.Check) bool { return k.Allow })...)
		}
		t.Run("without policy of "+group[0].Name, func(t *testing.T) { s.runWithoutPolicy(t, group[0], denied) })
	}
	t.Logf("%d cases, %d checks", len(cases), checks)
	if len(cases) < 100 {
		t.Errorf("%d cases of Kubernetes objects, want at least 100", len(cases))
	}
}

// sameButForPolicy puts the cases together whose clusters differ in policies only.
func sameButForPolicy(cases []corpus.Case) [][]corpus.Case {
	var keys []string
	groups := map[string][]corpus.Case{}
	for _, c := range cases {
		key := manifest(withoutPolicy(c))
		if groups[key] == nil {
			keys = append(keys, key)
		}
		groups[key] = append(groups[key], c)
	}
	var out [][]corpus.Case
	for _, key := range keys {
		out = append(out, groups[key])
	}
	return out
}

// run puts the case on the stage and tries each of its checks.
func (s *stage) run(t *testing.T, c corpus.Case) {
	s.plug(t, c.Updates, c.Checks)
	if len(c.Problems) > 0 { // no earlier case may have left a good version of what is rejected here
		s.apply(t, "")
	}
	for _, step := range steps(c.Documents) {
		s.apply(t, manifest(step))
	}
	s.awaitPods(t)
	s.try(t, c.Checks, func(k corpus.Check) bool { return k.Allow })
}

// runWithoutPolicy demands that what policy denies gets through without.
func (s *stage) runWithoutPolicy(t *testing.T, c corpus.Case, denied []corpus.Check) {
	s.plug(t, c.Updates, denied)
	s.apply(t, manifest(withoutPolicy(c)))
	s.awaitPods(t)
	for some := range slices.Chunk(denied, 50) {
		s.try(t, some, func(corpus.Check) bool { return true })
	}
}

// steps are the states that a case's documents lead through: one of an object that was there replaces it.
func steps(docs []corpus.Document) [][]corpus.Document {
	var all [][]corpus.Document
	var now []corpus.Document
	for _, d := range docs {
		i := slices.IndexFunc(now, func(o corpus.Document) bool {
			return o.Kind == d.Kind && o.Namespace == d.Namespace && o.Name == d.Name
		})
		if i < 0 {
			now = append(now, d)
			continue
		}
		all = append(all, now)
		now = slices.Clone(now)
		now[i] = d
	}
	return append(all, now)
}

func withoutPolicy(c corpus.Case) []corpus.Document {
	all := steps(c.Documents)
	last := slices.Clone(all[len(all)-1])
	return slices.DeleteFunc(last, func(d corpus.Document) bool { return d.Kind == "NetworkPolicy" })
}

func manifest(docs []corpus.Document) string {
	var b strings.Builder
	for _, d := range docs {
		fmt.Fprintf(&b, "%s\n---\n", bytes.TrimSpace(d.Text))
	}
	return b.String()
}

// lastEndpoints are the endpoints that updates leave, those without an address apart.
func lastEndpoints(updates []model.Update) map[model.EndpointID]*model.Endpoint {
	last := map[model.EndpointID]*model.Endpoint{}
	for _, u := range updates {
		u, ok := u.(model.EndpointUpdate)
		switch {
		case !ok:
		case u.Endpoint == nil || len(u.Endpoint.Addrs) == 0:
			delete(last, u.ID)
		default:
			last[u.ID] = u.Endpoint
		}
	}
	return last
}
