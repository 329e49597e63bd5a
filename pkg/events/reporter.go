// Package events tells the owners of objects that are rejected, or cannot be enforced, by Kubernetes Events, which
// kubectl shows beside the object. It is a courtesy: nothing waits for it, and nothing fails with it.
package events

import (
	"context"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
)

// Options of a Reporter. All fields are required.
type Options struct {
	Node     string             // this node's name: who reports
	Objects  dynamic.Interface  // for events
	Metadata metadata.Interface // for the objects that events are about
	Log      *slog.Logger
}

// Status is the state of a Reporter.
type Status struct {
	Subjects int    // objects there is something to tell of
	LeftOut  int    // objects beyond those: too many have problems
	Sent     uint64 // events written, those included that were there already
	Failed   uint64 // attempts at anything
	Error    string // of something whose last attempt failed; empty: there is no such thing
}

// Reporter reports problems as Events. Report and Status may be called from any goroutine and never wait.
//
// Problems that every node sees are reported by a few nodes, drawn by lot: the name of an event follows from its content, so
// the API server keeps the first one and refuses the copies. A problem that only one node sees is reported by that node, once
// it has lasted for half a minute. Events are rate-limited altogether and for each object; a reported problem is reported
// again after an hour, or when it, or its object, changes.
type Reporter struct {
	log    *slog.Logger
	sender *sender
	ledger *ledger
	wake   chan struct{}

	always []Item // beside what is reported

	rest    time.Time         // before which no list is read
	failing map[string]string // the last attempt at what failed, and how

	mu     sync.Mutex     // guards the fields below
	items  iter.Seq[Item] // nil: they are in the ledger
	nodes  int
	status Status
}

// New makes a reporter; nothing happens before Run.
func New(o Options) *Reporter {
	return &Reporter{
		log:     o.Log,
		sender:  &sender{objects: o.Objects, metadata: o.Metadata, node: o.Node},
		ledger:  newLedger(o.Node),
		wake:    make(chan struct{}, 1),
		failing: map[string]string{},
	}
}

// A list may have a million items, and is reported every two seconds. So that reading it uses no more than one part in restFor of a CPU, the
// reporter rests for so long after it has read one, but not longer than maxRest.
const (
	restFor = 50
	maxRest = time.Minute
)

// Report sets the complete list of present problems. Earlier problems that are not in it are over. nodes is the number of
// nodes in the cluster, from which agents compute how many of them report; 0: not known. Run reads the list, twice: the second time it may
// differ.
func (r *Reporter) Report(items iter.Seq[Item], nodes int) {
	r.mu.Lock()
	r.items, r.nodes = items, nodes
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Always has items reported beside those of Report, as long as the agent runs. It is called before Run.
func (r *Reporter) Always(items ...Item) { r.always = items }

// Status returns the reporter's own state.
func (r *Reporter) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

// Run sends Events for the reported problems until ctx ends; then it returns nil.
func (r *Reporter) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		case <-timer.C:
		}
		timer.Stop()
		if next := r.step(ctx); !next.IsZero() {
			timer.Reset(time.Until(next))
		}
	}
}

// step sends the event that is due first, if it is due now, and returns when there is more to do; zero: not before something changes.
func (r *Reporter) step(ctx context.Context) time.Time {
	now := time.Now()
	waits := r.drain(now)
	about, due, ok := r.ledger.next(now)
	if ok && !due.After(now) {
		r.report(ctx, about, now)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.Subjects = r.ledger.present()
	if waits && (!ok || r.rest.Before(due)) {
		return r.rest
	}
	return due
}

// drain passes reported items to the ledger. It reports whether some wait until it is time to read them.
func (r *Reporter) drain(now time.Time) (waits bool) {
	r.mu.Lock()
	items, nodes := r.items, r.nodes
	if waits = items != nil && now.Before(r.rest); !waits {
		r.items = nil
	}
	r.mu.Unlock()
	if items == nil || waits {
		return waits
	}
	all, leftOut := messages(func(yield func(Item) bool) {
		for _, it := range r.always {
			if !yield(it) {
				return
			}
		}
		items(yield)
	})
	r.ledger.report(all, nodes, now)
	r.rest = time.Now().Add(min(restFor*time.Since(now), maxRest))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.LeftOut = leftOut
	if len(all) == 0 { // nothing will be tried again
		clear(r.failing)
		r.status.Error = ""
	}
	return false
}

// report sends one event.
func (r *Reporter) report(ctx context.Context, about subject, now time.Time) {
	res := r.sender.send(ctx, about, r.ledger.entries[about].message, now)
	if ctx.Err() != nil {
		return
	}
	r.note("event", res.event)
	if res.identity != nil || res.exists {
		r.note("object "+about.kind, res.identity)
	}
	switch {
	case res.identity == nil && res.event == nil, res.exists:
		r.ledger.done(about, now)
	case apierrors.IsForbidden(res.event):
		r.ledger.forbid(about, now.Add(deniedFor+upTo(deniedFor)))
		fallthrough
	default:
		r.ledger.failed(about, now)
	}
	if res.exists {
		r.mu.Lock()
		r.status.Sent++
		r.mu.Unlock()
	}
}

// note remembers how something went, and logs a failure unless the last attempt at it failed, too.
func (r *Reporter) note(what string, err error) {
	_, failing := r.failing[what]
	delete(r.failing, what)
	if err != nil {
		r.failing[what] = err.Error()
	}
	r.mu.Lock()
	r.status.Error = ""
	for _, what := range slices.Sorted(maps.Keys(r.failing)) {
		r.status.Error = r.failing[what]
		break
	}
	if err != nil {
		r.status.Failed++
	}
	r.mu.Unlock()
	if err != nil && !failing {
		r.log.Warn("Kubernetes Events about problems of objects are late or missing; enforcement is not affected", "err", err)
	}
}
