package agent

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/health"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/syncer"
)

func TestProbesKnowAtOnceWhetherPolicyIsEnforced(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		want := func(when string, ready bool) {
			t.Helper()
			synctest.Wait()
			if r.health.Ready() != ready {
				t.Errorf("%s: ready %t: %+v", when, !ready, r.health.Components())
			}
		}
		r.report(syncer.KindStatus{Kind: "Pod", State: syncer.KindSynced, Required: true, Listed: true})
		r.put(pod(1))
		want("before the first snapshot", false)
		r.put(model.InSync{})
		want("in sync", true)
		r.dp.Set(dataplane.FakeSettings{Failures: -1, ApplyErr: errors.New("no memory")})
		r.put(pod(2))
		want("while nothing can be written", false)
	})
}

// TestEveryPassShowsThatTheLoopIsLive: many long passes may follow each other, none of which is the regular look.
func TestEveryPassShowsThatTheLoopIsLive(t *testing.T) {
	now := time.Unix(1000, 0)
	a := health.New(func() time.Time { return now })
	p := newProbes(Options{Health: a}, nodeFaults{closed: newClosedInterfaces("n", slog.New(slog.DiscardHandler), nil), absent: &absentInterfaces{}})
	for range 10 {
		now = now.Add(loopTimeout)
		if !a.Live() {
			t.Fatalf("not live before a pass is over that may take so long: %+v", a.Components())
		}
		p.Observe(Outcome{Apply: &Attempt{}})
	}
	now = now.Add(loopTimeout + 1)
	if a.Live() {
		t.Errorf("live after a pass that takes too long: %+v", a.Components())
	}
}

func TestTheDatastoresHealthNamesWhatIsMissing(t *testing.T) {
	for _, tc := range []struct {
		name   string
		kinds  []syncer.KindStatus
		ready  bool
		detail string
	}{
		{"all is there", []syncer.KindStatus{{Kind: "Pod", State: syncer.KindSynced, Required: true, Listed: true}}, true, ""},
		{"a required kind has not come", []syncer.KindStatus{{Kind: "Pod", State: syncer.KindListing, Required: true}}, false,
			"Pod: waiting for the first list"},
		{"a required kind cannot be listed", []syncer.KindStatus{{Kind: "Pod", State: syncer.KindFailing, Required: true, Error: "forbidden"}},
			false, "Pod: forbidden"},
		{"a required kind fails later", []syncer.KindStatus{{Kind: "Pod", State: syncer.KindFailing, Required: true, Listed: true,
			Error: "away"}}, true, "Pod: away"},
		{"another kind cannot be listed", []syncer.KindStatus{{Kind: "Node", State: syncer.KindFailing, Error: "forbidden"}}, true,
			"Node: forbidden"},
		{"a kind is absent", []syncer.KindStatus{{Kind: "FelixConfiguration", State: syncer.KindAbsent, Listed: true, Error: "not served"}},
			true, "FelixConfiguration: absent"},
		{"very many kinds are absent", []syncer.KindStatus{{Kind: "A", State: syncer.KindAbsent, Listed: true}, {Kind: "B", State: syncer.KindAbsent,
			Listed: true}, {Kind: "C", State: syncer.KindAbsent, Listed: true}, {Kind: "D", State: syncer.KindFailing, Error: "forbidden"}},
			true, "D: forbidden; 3 optional kinds: absent"},
	} {
		if r := datastoreHealth(tc.kinds); !r.Live || r.Ready != tc.ready || r.Detail != tc.detail {
			t.Errorf("%s: %+v", tc.name, r)
		}
	}
}

func TestANameThatNoNodeHasIsSaid(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		want := func(when string, ready bool, lines int) {
			t.Helper()
			time.Sleep(missingAfter + 5*time.Second)
			synctest.Wait()
			for _, c := range r.health.Components() {
				if c.Name == "datastore" && (c.Ready != ready || ready == strings.Contains(c.Detail, `"n"`)) {
					t.Errorf("%s: %+v", when, c)
				}
			}
			if n := strings.Count(r.log.String(), "no pod belongs to this node"); n != lines {
				t.Errorf("%s: %d lines in the log, want %d", when, n, lines)
			}
		}
		r.report(syncer.KindStatus{Kind: "Node", State: syncer.KindSynced, Listed: true, Objects: 1})
		r.put(model.NodeUpdate{Name: "other", Node: &model.Node{}})
		want("before the first snapshot", true, 0)
		r.put(model.InSync{})
		time.Sleep(missingAfter / 2)
		if strings.Contains(r.log.String(), "no pod belongs to this node") {
			t.Errorf("a node that may be about to be registered:\n%s", &r.log)
		}
		want("another node", false, 1)
		r.put(model.NodeUpdate{Name: "n", Node: &model.Node{}})
		want("this node", true, 1)
		r.put(model.NodeUpdate{Name: "n"})
		r.report(syncer.KindStatus{Kind: "Node", State: syncer.KindFailing})
		want("nodes cannot be listed", true, 1)
	})
}
