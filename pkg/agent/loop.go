// Package agent is the loop between a datastore and a dataplane: batch updates, flush the graph, apply, back off. It
// decides when things happen, never what.
package agent

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/syncer"
)

const (
	// batch bounds how many updates are taken at once, so that a large snapshot does not keep the loop from its
	// other duties. Nothing is lost by it: the graph is flushed after each batch.
	batch = 10000

	firstRetry = 100 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// Options are the parts a Loop joins.
type Options struct {
	Source    syncer.Source
	Graph     *calc.Graph // owned by the loop from here on
	Dataplane dataplane.Dataplane
	Log       *slog.Logger

	SweepEvery  time.Duration // 0: 2 s
	ResyncEvery time.Duration // 0: 90 s
}

// Loop runs one agent. Its exported methods, Run apart, may be called from any goroutine.
type Loop struct {
	o       Options
	buffer  *syncer.Buffer
	status  statusBox
	queries chan query
	state   map[model.Key]model.Update // last update of every object, for explanations
}

// New makes a loop; nothing happens before Run.
func New(o Options) *Loop {
	if o.SweepEvery == 0 {
		o.SweepEvery = 2 * time.Second
	}
	if o.ResyncEvery == 0 {
		o.ResyncEvery = 90 * time.Second
	}
	return &Loop{o: o, buffer: syncer.NewBuffer(), queries: make(chan query), state: map[model.Key]model.Update{}}
}

// Run blocks until ctx ends (then it returns nil, with enforcement left in place) or the source cannot go on. It does
// not close the dataplane.
func (l *Loop) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return l.o.Source.Run(ctx, l.buffer.Put) })
	g.Go(func() error { return l.consume(ctx) })
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func (l *Loop) consume(ctx context.Context) error {
	sweep := time.NewTicker(l.o.SweepEvery)
	defer sweep.Stop()
	resync := time.NewTicker(l.o.ResyncEvery)
	defer resync.Stop()
	retry := time.NewTimer(time.Hour)
	retry.Stop()
	backoff := firstRetry
	for {
		due := false
		select {
		case <-ctx.Done():
			return nil
		case q := <-l.queries:
			q.do(l.view())
			close(q.done)
		case <-l.buffer.Ready():
			l.take(l.buffer.Take(batch))
			due = true
		case <-l.o.Dataplane.Wake():
			due = true
		case <-retry.C:
			due = true
		case <-resync.C:
			l.o.Dataplane.Resync()
			due = true
		case <-sweep.C:
			if err := l.o.Dataplane.Sweep(); err != nil {
				l.o.Log.Warn("sweep of expired flows failed, will try again", "err", err)
			}
		}
		if !due {
			continue
		}
		if l.apply(ctx) {
			backoff = firstRetry
			retry.Stop()
			continue
		}
		retry.Reset(backoff)
		backoff = min(2*backoff, lastRetry)
	}
}

// take feeds the graph and remembers each object's last state.
func (l *Loop) take(updates []model.Update) {
	l.o.Graph.Apply(updates)
	for _, u := range updates {
		l.remember(u)
	}
}

// apply flushes the graph into the dataplane. It reports whether everything that is desired is enforced.
func (l *Loop) apply(ctx context.Context) bool {
	started := time.Now()
	changes := l.o.Graph.Flush()
	if !changes.InSync {
		return true
	}
	err := l.o.Dataplane.Apply(ctx, changes)
	first := l.status.applied(started, time.Since(started), err)
	switch {
	case err != nil:
		l.o.Log.Error("policy is not fully enforced, what was enforced before stays; will try again", "err", err)
	case first:
		l.o.Log.Info("in sync: policy is enforced", "endpoints", len(l.o.Graph.LocalEndpoints()), "took", time.Since(started))
	}
	return err == nil
}
