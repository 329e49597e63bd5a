package agent

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/margay-project/margay/pkg/health"
)

func TestWhatIsFoundOnTheNodeIsSaidAndKeepsTheAgentFromBeingReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		all := health.New(time.Now)
		var found []string
		var failure error
		s := newSurroundings([]Look{
			{What: "IPVS", Every: time.Minute, Find: func() ([]string, error) { return found, failure }},
			{What: "marks", Every: 10 * time.Minute, Find: func() ([]string, error) { return nil, nil }},
		}, all.Add("node", 0), slog.New(slog.NewTextHandler(&log, nil)))
		if all.Ready() {
			t.Error("ready before anything was looked at")
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.run(ctx)
		}()
		want := func(when string, ready bool, problems, lines int) {
			t.Helper()
			time.Sleep(time.Minute + time.Second)
			synctest.Wait()
			if all.Ready() != ready {
				t.Errorf("%s: ready %t: %+v", when, !ready, all.Components())
			}
			if p := s.problems("n1"); len(p) != problems || problems > 0 && p[0].Ref.String() != "Node n1" {
				t.Errorf("%s: problems %v, want %d of Node n1", when, p, problems)
			}
			if n := strings.Count(log.String(), "level=ERROR"); n != lines {
				t.Errorf("%s: %d errors in the log, want %d:\n%s", when, n, lines, &log)
			}
		}
		want("nothing is there", true, 0, 0)
		found = []string{"kube-proxy works in IPVS mode"}
		want("found", false, 1, 1)
		want("found again", false, 1, 1)
		failure = errors.New("no memory")
		want("what was found stays while nothing can be looked at", false, 2, 2)
		failure, found = nil, nil
		want("gone", true, 0, 2)
		failure = errors.New("no memory")
		want("that it cannot be looked at is said, no more", true, 1, 3)
		stop()
		<-ended
	})
}
