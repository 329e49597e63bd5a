// Package agent is the loop between a datastore and a dataplane: batch updates, flush the graph, apply, back off. It
// decides when things happen, never what.
package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"runtime/debug"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/config"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/endpointstatus"
	"github.com/margay-project/margay/pkg/events"
	"github.com/margay-project/margay/pkg/health"
	"github.com/margay-project/margay/pkg/metrics"
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
	Node      string // this node's name
	Source    syncer.Source
	Graph     *calc.Graph // owned by the loop from here on
	Dataplane dataplane.Dataplane
	Log       *slog.Logger

	// Settings are what is configured; the loop owns them until Run returns, and adds what the datastore says.
	Settings *config.Layers
	// Files delivers a configuration file that has changed; nil inside: it is gone. Nil: it never does.
	Files <-chan *config.File
	Level *slog.LevelVar // of Log, set as configured; nil: left alone

	Metrics  *metrics.Metrics
	Health   *health.Aggregate
	Statuses *endpointstatus.Writer // nil: no files
	Events   *events.Reporter       // nil: no events
	Looks    []Look                 // at the node
	// Routes delivers to which workload interface the node routes each single address, all of it: what there is at the
	// start, then every change. Nothing is enforced before the first. Nil: that is not known, and what endpoints claim to
	// be theirs is.
	Routes <-chan map[netip.Addr]string
}

// ErrRestart says that the configuration has changed in a way that takes a new loop, with everything it joins.
var ErrRestart = errors.New("the configuration has changed: everything starts anew")

// Loop runs one agent. Its exported methods, Run apart, may be called from any goroutine.
type Loop struct {
	o        Options
	buffer   *syncer.Buffer
	status   statusBox
	queries  chan query
	arrivals *arrivals
	parts    parts         // as they are in Health
	started  chan struct{} // closed when the first snapshot is enforced
	node     *surroundings
	closed   closedInterfaces
	routes   routes
	policies *policyLog

	applying, holding, sweeping, configuring *problems

	synced  bool           // the first snapshot has been taken
	settled bool           // and so has all of the configuration in the datastore
	restart bool           // the file takes a restart, even before that
	inForce config.Config  // what is configured, as far as it is in force
	opening *config.Config // what the dataplane is about to be reopened with; nil: as it is
	refused *config.Config // what it could not be reopened with, and is not to be before the next resync
	stuck   int            // retries in a row that ended with ErrStuck
	reopen  bool           // the dataplane is to be reopened
	missing time.Time      // since then the datastore has not this node; zero: it has
	lost    bool           // the log knows that

	states  []dataplane.EndpointStatus  // as of the last apply
	written events.Status               // as counted by Metrics
	told    map[model.EndpointID]uint32 // interfaces of the endpoints that the CNI plugin knows to be enforced
}

// lookEvery is how often the loop looks after what nothing wakes it for.
const lookEvery = 2 * time.Second

// New makes a loop; nothing happens before Run.
func New(o Options) *Loop {
	parts := newParts(o.Health)
	return &Loop{o: o, buffer: syncer.NewBuffer(), queries: make(chan query), started: make(chan struct{}),
		arrivals: newArrivals(o.Node), inForce: o.Settings.Config(), parts: parts,
		node: newSurroundings(o.Looks, parts.node, o.Log), closed: closedInterfaces{node: o.Node, log: o.Log},
		routes: routes{next: o.Routes, awaited: o.Routes != nil}, policies: newPolicyLog(o.Log),
		applying: newProblems(o.Log, "policy is not fully enforced, what was enforced before stays; will try again",
			"policy is fully enforced again"),
		holding:     newProblems(o.Log, "an endpoint's policy cannot be enforced, the others' is", "every endpoint's policy is enforced again"),
		sweeping:    newProblems(o.Log, "expired flows are not removed, will try again", "expired flows are removed again"),
		configuring: newProblems(o.Log, "configuration is not used as it is written", "configuration is used as it is written again"),
	}
}

// Run blocks until ctx ends (then it returns nil, with enforcement left in place), the source cannot go on, or the
// configuration takes a new loop (ErrRestart). It does not close the dataplane.
func (l *Loop) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return l.o.Source.Run(ctx, func(updates []model.Update) {
			l.arrivals.note(updates, time.Now())
			l.buffer.Put(updates)
		})
	})
	g.Go(func() error { return l.consume(ctx) })
	g.Go(func() error {
		l.node.run(ctx)
		return nil
	})
	g.Go(func() error {
		select {
		case <-l.started:
			// The first lists leave more garbage than what is kept of them; Go would hold on to the memory for minutes.
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

// InSync is closed once the first snapshot is enforced.
func (l *Loop) InSync() <-chan struct{} { return l.started }

func (l *Loop) consume(ctx context.Context) error {
	sweep := time.NewTimer(lookEvery)
	defer sweep.Stop()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	resyncEvery := l.o.Settings.Config().ResyncEvery
	resync := time.NewTicker(resyncEvery)
	defer resync.Stop()
	retry := newBackoff()
	defer retry.timer.Stop()
	l.report()
	for ctx.Err() == nil {
		due, only := true, false // what is due is only what the datastore has changed
		select {
		case <-ctx.Done():
			return nil
		case q := <-l.queries:
			q.do(l.view())
			close(q.done)
			due = false
		case <-l.buffer.Ready():
			l.take(l.buffer.Take(batch))
			only = true
		case list, ok := <-l.routes.next:
			due, only = l.routes.take(list, ok, l.o.Graph), true
		case f := <-l.o.Files:
			l.readFile(f)
		case <-l.o.Dataplane.Wake():
		case <-retry.timer.C:
			retry.fired()
		case <-resync.C:
			l.o.Dataplane.Resync()
			l.refused = nil
		case <-sweep.C:
			sweep.Reset(l.sweep())
			due = false
		case <-look.C:
			l.report()
			due = l.settle()
		}
		if !due {
			continue
		}
		ok, err := l.apply(ctx, retry.running, only)
		if err != nil {
			return err
		}
		retry.after(ok)
		if every := l.o.Settings.Config().ResyncEvery; every != resyncEvery {
			resyncEvery = every
			resync.Reset(every)
		}
	}
	return nil
}

// take feeds the graph and the settings.
func (l *Loop) take(updates []model.Update) {
	l.arrivals.take()
	l.o.Metrics.Taken(len(updates))
	l.policies.note(updates)
	l.o.Graph.Apply(updates)
	l.synced = l.synced || slices.Contains(updates, model.Update(model.InSync{}))
	l.o.Settings.Apply(slices.DeleteFunc(updates, func(u model.Update) bool { return u == model.Update(model.InSync{}) }))
	l.settle()
	l.configure()
}

// apply brings what is configured into force and flushes the graph into the dataplane, as a retry or for something new.
// It reports whether everything that is desired is enforced. The error is ErrRestart. With only, the dataplane has
// nothing else to do than what the flush says: most changes in a cluster are none for a node.
func (l *Loop) apply(ctx context.Context, retry, only bool) (ok bool, err error) {
	if err := l.reconfigure(); err != nil {
		return false, err
	}
	if l.routes.awaited {
		return true, nil
	}
	started := time.Now()
	if l.reopen {
		if err := l.startOver(); err != nil {
			l.applied(started, retry, err)
			return false, nil
		}
	}
	changes := l.o.Graph.Flush()
	if !changes.InSync {
		return true, nil
	}
	l.o.Metrics.Flushed(time.Since(started))
	l.policies.flushed(changes, !l.status.get().InSync, started)
	if only && len(changes.Endpoints)+len(changes.Sets) == 0 && l.status.get().Ready {
		l.arrivals.enforced(time.Now())
		return l.status.done(), nil
	}
	err = l.o.Dataplane.Apply(ctx, changes)
	l.applied(started, retry, err)
	switch {
	case !errors.Is(err, dataplane.ErrStuck):
		l.stuck = 0
	case retry:
		l.stuck++
		l.reopen = l.stuck >= patience
	}
	return l.status.done(), nil
}

// applied says how an attempt to enforce ended, to everybody who wants to know.
func (l *Loop) applied(started time.Time, retry bool, err error) {
	now := time.Now()
	took := now.Sub(started)
	ready, first := l.status.get().Ready, l.status.applied(started, took, err)
	held, err := heldBack(err)
	l.o.Metrics.Applied(took, retry, err)
	l.applying.say(err)
	if held != nil {
		l.holding.say(held.Err)
	} else if err == nil {
		l.holding.say(nil)
	}
	if first {
		l.o.Log.Info("in sync: policy is enforced", "endpoints", len(l.o.Graph.LocalEndpoints()), "took", took)
		close(l.started)
	}
	if err == nil {
		l.policies.enforced(now)
		if waited, ok := l.arrivals.enforced(now); ok {
			l.o.Metrics.ChangeEnforced(waited)
		}
	}
	l.states = l.o.Dataplane.Endpoints()
	for _, waited := range l.arrivals.pods(l.states, now) {
		l.o.Metrics.PodEnforced(waited)
	}
	l.tellCNI()
	if ready != l.status.get().Ready {
		l.report() // probes know it at once
	}
	l.o.Dataplane.Prepare()
}

// startOver reopens the dataplane and gives it everything that is desired now with the next flush: changes that it
// could not write may not be among that any more.
func (l *Loop) startOver() error {
	err := l.o.Dataplane.Reopen()
	l.reopened(err)
	if err != nil {
		return err
	}
	l.o.Metrics.Reopened()
	if l.stuck > 0 {
		l.o.Log.Warn("changes that cannot be written kept others waiting; starting over from what is enforced")
	}
	l.reopen, l.stuck = false, 0
	l.o.Graph.Restate()
	return nil
}

// sweep removes expired flows and returns when to go on with that.
func (l *Loop) sweep() time.Duration {
	started := time.Now()
	next, err := l.o.Dataplane.Sweep()
	l.o.Metrics.Swept(time.Since(started), err)
	l.sweeping.say(err)
	return next
}
