package agent

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/margay-project/margay/pkg/health"
)

// lookedAt is what a look finds. Safe for concurrent use.
type lookedAt struct {
	mu    sync.Mutex
	found []string
	err   error
}

func (l *lookedAt) find() ([]string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.found, l.err
}

func (l *lookedAt) set(err error, found ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.found, l.err = found, err
}

func TestWhatIsFoundOnTheNodeIsSaidAndKeepsTheAgentFromBeingReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log sharedLog
		all := health.New(time.Now)
		var node lookedAt
		s := newSurroundings([]Look{
			{What: "IPVS", Every: time.Minute, Find: node.find},
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
		node.set(nil, "kube-proxy works in IPVS mode")
		want("found", false, 1, 1)
		want("found again", false, 1, 1)
		node.set(errors.New("no memory"))
		want("what was found stays while nothing can be looked at", false, 2, 2)
		node.set(nil)
		want("gone", true, 0, 2)
		node.set(errors.New("no memory"))
		want("that it cannot be looked at is said, no more", true, 1, 3)
		stop()
		<-ended
	})
}
