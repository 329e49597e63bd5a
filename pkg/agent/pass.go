package agent

import (
	"context"
	"time"
)

// task is the work of one pass.
type task struct {
	batch     Batch
	apply     bool // there may be something to enforce
	flushOnly bool // and that is nothing but what the flush says: most changes in a cluster are none for a node
	retry     bool // because an attempt failed
	sweep     bool
	look      bool // it is time for the regular look
}

// pass carries out a task and hands its outcome to all observers. The error is ErrRestart; then there is no outcome.
func (l *Loop) pass(ctx context.Context, t task) (Outcome, error) {
	out := Outcome{Started: time.Now(), Batch: t.batch, Complete: true}
	if len(t.batch.Updates) > 0 {
		l.graph.Apply(t.batch.Updates)
		l.settings.apply(t.batch)
		if t.batch.InSync {
			l.settings.forget(l.reports.Kinds, l.inbox.empty)
		}
	}
	if t.sweep {
		out.Sweep = l.sweep()
	}
	ready := l.progress.status.Ready
	if t.apply {
		if err := l.apply(ctx, t, &out); err != nil {
			return Outcome{}, err
		}
	}
	if !l.progress.status.InSync {
		out.Inherited = l.dataplane.Ready()
	}
	out.Config, out.Status, out.States = l.settings.drain(), l.progress.status, l.states
	if t.look || ready != out.Status.Ready { // probes know that at once
		out.Facts = l.facts()
	}
	out.Ended = time.Now()
	for _, o := range l.observers {
		o.Observe(out)
	}
	if out.Apply != nil {
		l.dataplane.Prepare()
	}
	return out, nil
}

// apply applies the configuration and flushes the graph into the dataplane. The error is ErrRestart.
func (l *Loop) apply(ctx context.Context, t task, out *Outcome) error {
	reopen, err := l.settings.reconfigure(l.dataplane)
	if err != nil {
		return err
	}
	l.progress.reopen = l.progress.reopen || reopen
	if l.routes.awaited {
		return nil
	}
	started := time.Now()
	if l.progress.reopen {
		if err := l.reopen(out); err != nil {
			l.attempted(out, Attempt{Started: started, Retry: t.retry, Reopen: true}, err)
			return nil
		}
	}
	l.graph.Linger(l.progress.lingers(l.graph.HasLate(), l.states, started))
	changes := l.graph.Flush()
	turning := l.graph.Turning()
	l.progress.turning = len(turning) > 0 || l.graph.HasMore()
	l.inbox.hold(turning)
	if !changes.InSync {
		return nil
	}
	out.Flush = &Flush{Changes: changes, Took: time.Since(started), First: !l.progress.status.InSync, Postponed: l.graph.Postponed()}
	if t.flushOnly && len(changes.Endpoints)+len(changes.Sets) == 0 && l.progress.status.Ready {
		out.Complete = l.progress.complete()
		return nil
	}
	l.attempted(out, Attempt{Started: started, Retry: t.retry}, l.dataplane.Apply(ctx, changes))
	if late := l.graph.HasLate(); late && !l.progress.lingers(late, l.states, time.Now()) {
		l.progress.turning = true
	}
	return nil
}

// attempted records how an attempt to enforce ended.
func (l *Loop) attempted(out *Outcome, a Attempt, err error) {
	a.Took = time.Since(a.Started)
	l.progress.attempted(&a, err)
	l.progress.behind = a.Err != nil && (a.Reopen || l.dataplane.Stats(false).Unwritten > 0)
	l.states = l.dataplane.Endpoints()
	out.Apply, out.Complete = &a, l.progress.complete()
}

// reopen reopens the dataplane and gives it everything that is desired now with the next flush: changes that it could not
// write may not be among that any more.
func (l *Loop) reopen(out *Outcome) error {
	err := l.dataplane.Reopen()
	l.settings.reopened(err)
	if err != nil {
		return err
	}
	out.Reopen = &Reopening{Stuck: l.progress.stuck > 0}
	l.progress.reopened()
	l.graph.Restate()
	return nil
}

// sweep removes expired flows.
func (l *Loop) sweep() *Sweep {
	started := time.Now()
	next, err := l.dataplane.Sweep()
	return &Sweep{Took: time.Since(started), Next: next, Err: err}
}

// facts reads the facts for observers that report regularly.
func (l *Loop) facts() *Facts {
	return &Facts{
		Synced: l.settings.synced, NodeSeen: l.settings.layers.NodeSeen(), Kinds: l.reports.Kinds(),
		Settings:   configProblems(l.settings.layers),
		Interfaces: l.dataplane.Interfaces(), Local: l.graph.LocalEndpoints(), Awaited: l.graph.AwaitedPods(),
		LostClaims: l.graph.LostClaims(), ServiceClaims: l.graph.ServiceClaims(),
	}
}
