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

	// patience is how many retries changes that keep others waiting get, about three seconds, before the dataplane is
	// reopened and given what is desired by then.
	patience = 5
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
	state   map[model.Key]model.Update // last update of every object, for explanations and a reopened dataplane

	applying, sweeping *problems
	stuck              int  // retries in a row that ended with ErrStuck
	reopen             bool // the dataplane is to be reopened
}

// New makes a loop; nothing happens before Run.
func New(o Options) *Loop {
	if o.SweepEvery == 0 {
		o.SweepEvery = 2 * time.Second
	}
	if o.ResyncEvery == 0 {
		o.ResyncEvery = 90 * time.Second
	}
	return &Loop{o: o, buffer: syncer.NewBuffer(), queries: make(chan query), state: map[model.Key]model.Update{},
		applying: newProblems(o.Log, "policy is not fully enforced, what was enforced before stays; will try again",
			"policy is fully enforced again"),
		sweeping: newProblems(o.Log, "expired flows are not removed, will try again", "expired flows are removed again"),
	}
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
	retry := newBackoff()
	defer retry.timer.Stop()
	for ctx.Err() == nil {
		due := true
		select {
		case <-ctx.Done():
			return nil
		case q := <-l.queries:
			q.do(l.view())
			close(q.done)
			due = false
		case <-l.buffer.Ready():
			l.take(l.buffer.Take(batch))
		case <-l.o.Dataplane.Wake():
		case <-retry.timer.C:
			retry.fired()
		case <-resync.C:
			l.o.Dataplane.Resync()
		case <-sweep.C:
			l.sweeping.say(l.o.Dataplane.Sweep())
			due = false
		}
		if due {
			retry.after(l.apply(ctx, retry.running))
		}
	}
	return nil
}

// take feeds the graph and remembers each object's last state.
func (l *Loop) take(updates []model.Update) {
	l.o.Graph.Apply(updates)
	for _, u := range updates {
		l.remember(u)
	}
}

// apply flushes the graph into the dataplane, as a retry or for something new. It reports whether everything that is
// desired is enforced.
func (l *Loop) apply(ctx context.Context, retry bool) bool {
	started := time.Now()
	if l.reopen {
		if err := l.startOver(); err != nil {
			l.status.applied(started, time.Since(started), err)
			l.applying.say(err)
			return false
		}
	}
	changes := l.o.Graph.Flush()
	if !changes.InSync {
		return true
	}
	err := l.o.Dataplane.Apply(ctx, changes)
	l.applying.say(err)
	if l.status.applied(started, time.Since(started), err) {
		l.o.Log.Info("in sync: policy is enforced", "endpoints", len(l.o.Graph.LocalEndpoints()), "took", time.Since(started))
	}
	switch {
	case !errors.Is(err, dataplane.ErrStuck):
		l.stuck = 0
	case retry:
		l.stuck++
		l.reopen = l.stuck >= patience
	}
	return err == nil
}

// startOver reopens the dataplane and gives it everything that is desired now with the next flush: changes that it
// could not write may not be among that any more.
func (l *Loop) startOver() error {
	if err := l.o.Dataplane.Reopen(); err != nil {
		return err
	}
	l.o.Log.Warn("changes that cannot be written kept others waiting; starting over from what is enforced")
	l.reopen, l.stuck = false, 0
	l.o.Graph = l.o.Graph.Anew()
	l.o.Graph.Apply(append(l.view().Updates(), model.InSync{}))
	return nil
}
