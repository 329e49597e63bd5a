// Package agent is the loop between a datastore and a dataplane: drain what was delivered, flush the graph, apply, back
// off. It decides when things happen, never what. Observers get the outcome of each pass.
package agent

import (
	"context"
	"errors"
	"runtime/debug"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/syncer"
)

const (
	// batchSize bounds how many updates are drained at once, so that a large snapshot does not keep the loop from its
	// other duties. Nothing is lost by it: the graph is flushed after each batch.
	batchSize = 10000

	// lookEvery is how often the loop checks state whose changes do not wake it.
	lookEvery = 2 * time.Second
)

// ErrRestart says that the configuration has changed in a way that takes a new loop, with everything it joins.
var ErrRestart = errors.New("the configuration has changed and takes a restart")

// Loop runs one agent. Its exported methods, Run apart, may be called from any goroutine.
type Loop struct {
	source    syncer.Source
	reports   *syncer.Reports // of the source
	inbox     *inbox
	graph     *calc.Graph
	dataplane dataplane.Dataplane
	settings  *settings
	routes    routes
	progress  progress
	states    []dataplane.EndpointStatus // as of the last attempt
	queries   chan query

	observers []observer // all of those below that observe are among them
	status    *statusBox
	faults    nodeFaults
	node      *surroundings
}

// New makes a loop; nothing happens before Run.
func New(o Options) *Loop {
	l := &Loop{source: o.Source, reports: syncer.NewReports(), inbox: newInbox(o.Node), graph: o.Graph, dataplane: o.Dataplane,
		settings: newSettings(o.Settings, o.Files), routes: routes{next: o.Routes, awaited: o.Routes != nil},
		queries: make(chan query), status: newStatusBox(), faults: newNodeFaults(o)}
	o.Graph.InParts(syncer.MostAddresses)
	l.observers = newObservers(o, l.reports, l.status, l.faults)
	l.node = newSurroundings(o.Looks, o.Health.Add("node", 0), o.Log)
	return l
}

// Run blocks until ctx ends (then it returns nil, with enforcement left in place), the source fails for good, or the
// configuration needs a new loop (ErrRestart). It does not close the dataplane.
func (l *Loop) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return l.source.Run(ctx, l.hear)
	})
	g.Go(func() error { return l.consume(ctx) })
	g.Go(func() error {
		l.node.run(ctx)
		return nil
	})
	g.Go(func() error {
		select {
		case <-l.InSync():
			// The first lists leave more garbage than live objects; Go would hold on to the memory for minutes.
			debug.FreeOSMemory()
		case <-ctx.Done():
		}
		return nil
	})
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// hear takes in a part of the source's stream.
func (l *Loop) hear(b syncer.Batch) {
	if len(b.Updates) > 0 {
		l.inbox.put(b.Updates, time.Now())
	}
	l.reports.Note(b) // that a kind is listed is known after its objects are
}

// Reports are what the source says of problems and kinds.
func (l *Loop) Reports() *syncer.Reports { return l.reports }

// InSync is closed once the first snapshot is enforced.
func (l *Loop) InSync() <-chan struct{} { return l.status.inSync }

// Status is the loop's current status.
func (l *Loop) Status() Status { return l.status.get() }

// consume makes one pass for each thing that happens.
func (l *Loop) consume(ctx context.Context) error {
	timers := newTimers(l.settings.layers.Config().ResyncEvery)
	defer timers.stop()
	next, ok := task{look: true}, true
	for ok {
		out, err := l.pass(ctx, next)
		if err != nil {
			return err
		}
		timers.after(next, out)
		next, ok = l.wait(ctx, timers)
	}
	return nil
}

// wait blocks until there is something to do and returns it as the task of the next pass; not ok: ctx has ended. Queries
// are answered meanwhile.
func (l *Loop) wait(ctx context.Context, timers *timers) (next task, ok bool) {
	select {
	case q := <-l.queries: // one after each pass, however much else there is to do
		l.answer(q)
	default:
	}
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case q := <-l.queries:
			l.answer(q)
		case <-l.inbox.ready():
			return task{batch: l.inbox.drain(batchSize), apply: true, flushOnly: true}, true
		case list, ok := <-l.routes.next:
			if l.routes.apply(list, ok, l.graph) {
				return task{apply: true, flushOnly: true}, true
			}
		case f := <-l.settings.files:
			l.settings.readFile(f)
			return task{apply: true}, true
		case <-l.dataplane.Wake():
			return task{batch: l.waiting(), apply: true}, true
		case <-l.next():
			return task{batch: l.waiting(), apply: true, flushOnly: true}, true
		case <-timers.retry.timer.C:
			timers.retry.fired()
			return task{apply: true, retry: true}, true
		case <-timers.resync.C:
			l.dataplane.Resync()
			l.settings.rollout.retry()
			return task{apply: true}, true
		case <-timers.sweep.C:
			return task{sweep: true}, true
		case <-timers.look.C:
			return task{look: true, apply: l.settings.forget(l.reports.Kinds, l.inbox.empty)}, true
		}
	}
	return task{}, false
}

func (l *Loop) answer(q query) {
	q.do(l.view())
	close(q.done)
}

// next gives a value if the graph has more without anything new. What else there is to do has its turn in between. While changes cannot be
// written, only attempts that are made anyway go on. That some endpoint fails is no such case: deletions wait for the end of a change in parts.
func (l *Loop) next() <-chan struct{} {
	if l.progress.turning && !l.progress.behind {
		return closedChannel
	}
	return nil
}

var closedChannel = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// waiting drains the inbox if there is something in it: changes come before what the dataplane has left to do.
func (l *Loop) waiting() Batch {
	select {
	case <-l.inbox.ready():
		return l.inbox.drain(batchSize)
	default:
		return Batch{}
	}
}
