package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/events"
	"github.com/margay-project/margay/pkg/syncer"
	"github.com/margay-project/margay/pkg/validate"
)

// Tenants may have made a million problems, and to list them takes seconds. The loop does not wait for that.
func TestTheLoopDoesNotWaitForProblemsOfObjects(t *testing.T) {
	store := syncer.NewMemory()
	o := complete(t, Options{Source: store, Graph: calc.New("n"), Dataplane: dataplane.NewFake(), Log: slog.New(slog.DiscardHandler)})
	loop := New(o)
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- loop.Run(ctx) }()
	asked, release := make(chan struct{}), make(chan struct{})
	api := &API{Loop: loop, Health: o.Health, Plane: plane{}, Reports: slowReports{loop.Reports(), asked, release}}
	answered := make(chan error, 1)
	go func() {
		_, err := api.problems(httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/problems", nil))
		answered <- err
	}()
	<-asked
	within, end := context.WithTimeout(ctx, time.Minute) // on a busy machine; the problems are held until after it
	defer end()
	if err := loop.Query(within, func(View) {}); err != nil {
		t.Errorf("while problems are listed, the loop does not answer: %v", err)
	}
	close(release)
	cancel()
	if err := errors.Join(<-answered, <-ran); err != nil {
		t.Error(err)
	}
}

// What the loop itself looks at every two seconds does not grow with the number of problems either.
func TestALookCostsNothingForEachProblemOfObjects(t *testing.T) {
	const objects, most = 5000, 20
	cost := func(objects int) time.Duration {
		o := complete(t, Options{Source: syncer.NewMemory(), Graph: calc.New("n"), Dataplane: dataplane.NewFake(), Log: slog.New(slog.DiscardHandler)})
		o.Events = events.New(events.Options{Node: "n", Log: o.Log})
		loop := New(o)
		for i := range objects {
			problems := slices.Repeat([]validate.Problem{{Ref: validate.Ref{Kind: "NetworkPolicy", Namespace: "evil", Name: strconv.Itoa(i)},
				Severity: validate.Warning, Reason: "odd"}}, 20)
			loop.reports.Note(syncer.Batch{Problems: []syncer.Findings{{Subject: strconv.Itoa(i), Problems: problems}}})
		}
		return testutil.LeastCPUTime(t, func() {
			for range 100 {
				out := Outcome{Facts: loop.facts()}
				for _, o := range loop.observers {
					o.Observe(out)
				}
			}
		})
	}
	few, many := cost(1), cost(objects)
	t.Logf("100 looks: %s with one object, %s with %d", few, many, objects)
	if many > most*few+time.Millisecond {
		t.Errorf("100 looks cost %s with one object that is odd, and %s with %d", few, many, objects)
	}
}
