package kubernetes

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/margay-project/margay/pkg/kube"
)

// gate is what all kinds of an agent wait at while the API server cannot be reached. Whoever suspects that it is gone
// asks the gate, which then looks, once for all.
type gate struct {
	ready   func(context.Context) error // asks the server whether it is ready
	explain func(error) string
	changed func() // is called when the outage begins or ends, or has another reason
	log     *slog.Logger
	history *history

	ctx     context.Context // of the source's Run
	running *sync.WaitGroup

	mu      sync.Mutex
	look    *look         // nil unless one is going on
	back    chan struct{} // closed, and replaced, when the server is back
	outages int           // that are over
	why     string        // the server cannot be used now; empty: it can, or it has not been tried
}

// look is one time of finding out whether the server is there, and of waiting until it is.
type look struct {
	over   chan struct{}
	outage bool // set before over is closed: the server was not there at first
}

const (
	// From one question to the next, unless it takes longer to be answered; jitter takes up to half of it. A refused
	// connection costs next to nothing; a server that comes back must be noticed well within a second, so that a new list
	// has its time, too.
	firstProbe, lastProbe = 100 * time.Millisecond, 600 * time.Millisecond
	// lastProbeUntrusted is for certificates that do not fit: only a human will mend that.
	lastProbeUntrusted = 10 * time.Second
	// lastProbeUnknown is for a server that does not know us: the token may be replaced at any time.
	lastProbeUnknown = 3 * time.Second
	probeTimeout     = 2 * time.Second

	// A server that answers and is not ready may be starting: all kinds ask it after the first. The second is for servers that
	// do not let us ask whether they are ready.
	startingPatience, silentPatience = 10 * time.Second, 2 * time.Second
)

func newGate(ready func(context.Context) error, explain func(error) string, changed func(), log *slog.Logger) *gate {
	return &gate{ready: ready, explain: explain, changed: changed, log: log, history: newHistory(log), back: make(chan struct{})}
}

// start lets the gate look for the server until ctx ends.
func (g *gate) start(ctx context.Context, running *sync.WaitGroup) { g.ctx, g.running = ctx, running }

// wait is called with an error after which the server may be gone. It blocks until the server is there, or ctx ends,
// and reports whether it had been gone. If not, the error is the caller's own affair.
func (g *gate) wait(ctx context.Context, suspicion error) (outage bool) {
	g.mu.Lock()
	l := g.look
	if l == nil {
		l = &look{over: make(chan struct{})}
		g.look = l
		g.running.Go(func() { g.search(l, suspicion) })
	}
	g.mu.Unlock()
	select {
	case <-ctx.Done():
		return true
	case <-l.over:
		return l.outage
	}
}

// sleep pauses a kind that has trouble of its own. It is shorter if the server goes away and comes back: that may have
// been the trouble. It reports false if ctx ended.
func (g *gate) sleep(ctx context.Context, d time.Duration) bool {
	g.mu.Lock()
	back := g.back
	g.mu.Unlock()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-back:
	case <-t.C:
	}
	return true
}

// search asks until the server answers.
func (g *gate) search(l *look, suspicion error) {
	defer func() {
		defer g.changed()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.look, g.why = nil, ""
		close(l.over)
		if l.outage {
			close(g.back)
			g.back = make(chan struct{})
			g.outages++
		}
	}()
	began, logged := time.Now(), false
	var answers time.Time // since when something answers
	pause := firstProbe
	for {
		asked := time.Now()
		err := g.ask()
		if err == nil || g.ctx.Err() != nil {
			break
		}
		l.outage = true
		g.noteWhy(g.explain(err))
		unknown := unknownToServer(err) && unknownToServer(suspicion)
		if !logged && (unknown || patienceWith(err) != silentPatience) {
			logged = true
			g.log.Warn("the API server cannot be reached or is not ready; the last known state of the cluster stays in force, will try again",
				"err", g.explain(err), "after", g.explain(suspicion))
		}
		limit := lastProbe
		switch {
		case kube.Untrusted(err):
			answers, limit = time.Time{}, lastProbeUntrusted
		case unknown:
			answers, limit = time.Time{}, lastProbeUnknown
		case kube.Unreachable(err):
			answers = time.Time{}
		case answers.IsZero():
			answers = time.Now()
		}
		if !answers.IsZero() && time.Since(answers) >= patienceWith(err) || !sleep(g.ctx, jitter(pause)-time.Since(asked)) {
			break
		}
		pause = min(2*pause, limit)
	}
	if logged && g.ctx.Err() == nil {
		g.log.Info("the API server is reached again", "outage", time.Since(began).Round(time.Millisecond))
	}
}

func (g *gate) noteWhy(why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.why = why
	g.changed()
}

// outage says why the server cannot be used now; empty: it can, as far as is known.
func (g *gate) outage() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.why
}

// past is how many outages are over.
func (g *gate) past() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.outages
}

func (g *gate) ask() error {
	ctx, cancel := context.WithTimeout(g.ctx, probeTimeout)
	defer cancel()
	return g.ready(ctx)
}

// concernsAll reports errors that all kinds have alike, so that the gate is asked: nothing answers, or it does not know
// who we are.
func concernsAll(err error) bool { return kube.Unreachable(err) || unknownToServer(err) }

func unknownToServer(err error) bool { return statusCode(err) == http.StatusUnauthorized }

// patienceWith is how long a server is left alone that answers the question whether it is ready with err.
func patienceWith(err error) time.Duration {
	switch code := statusCode(err); code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		return silentPatience
	}
	return startingPatience
}

// statusCode is the HTTP status of an answer; 0: there was none.
func statusCode(err error) int {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return int(status.Status().Code)
	}
	return 0
}

// sleep reports false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// jitter is a random time between half of d and d.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

// backoff spaces the attempts of one kind at a server that is there and cannot serve it.
type backoff struct{ pause time.Duration }

const firstPause, lastPause = 200 * time.Millisecond, 30 * time.Second

// next is how long to wait after err. It is at least the server's Retry-After.
func (b *backoff) next(err error) time.Duration {
	b.pause = min(max(2*b.pause, firstPause), lastPause)
	d := jitter(b.pause)
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		asked := min(time.Duration(seconds)*time.Second, 2*lastPause)
		d = max(d, asked+jitter(asked/2+1))
	}
	return d
}

func (b *backoff) reset() { b.pause = 0 }
