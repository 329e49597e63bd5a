// Package events tells the owners of objects that are rejected, or cannot be enforced, by Kubernetes Events, which
// kubectl shows beside the object. It is a courtesy: nothing waits for it, and nothing fails with it.
package events

import (
	"context"
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
	Node      string             // this node's name: who reports, and who holds the lease
	Namespace string             // of the lease: the agent's own
	Objects   dynamic.Interface  // for events and the lease
	Metadata  metadata.Interface // for the objects that events are about
	Log       *slog.Logger
}

// Status is what a Reporter says of itself.
type Status struct {
	Subjects int    // objects there is something to tell of
	LeftOut  int    // objects beyond those: too many have problems
	Leading  bool   // this node tells what all nodes see
	Sent     uint64 // events written, those included that were there already
	Failed   uint64 // attempts at anything
	Error    string // of something whose last attempt failed; empty: there is no such thing
}

// Reporter tells of problems. Report and Status may be called from any goroutine and never wait.
//
// What every node sees is told by one of them: the one that holds the Lease LeaseName, for which agents campaign only
// while they have something of that kind to tell. What only one node knows it tells itself, once it has lasted for half
// a minute. Events are rate-limited altogether and for each object; what was told is told again after an hour, or when
// it, or its object, changes.
type Reporter struct {
	log      *slog.Logger
	sender   *sender
	campaign *campaign
	ledger   *ledger
	wake     chan struct{}

	deniedEvents, deniedLease time.Time         // when to try again what was forbidden
	failing                   map[string]string // the last attempt at what failed, and how

	mu     sync.Mutex // guards what follows
	items  []Item
	fresh  bool // items are not in the ledger yet
	nodes  int
	status Status
}

// New makes a reporter; nothing happens before Run.
func New(o Options) *Reporter {
	return &Reporter{
		log:      o.Log,
		sender:   &sender{objects: o.Objects, metadata: o.Metadata, node: o.Node},
		campaign: &campaign{leases: o.Objects.Resource(leaseResource).Namespace(o.Namespace), identity: o.Node},
		ledger:   newLedger(),
		wake:     make(chan struct{}, 1),
		failing:  map[string]string{},
	}
}

// Report says what there is to tell now, all of it; what was reported before and is not among it is over. nodes is the
// number of nodes in the cluster as far as known, by which the agents spread their requests. The slice is the
// reporter's from then on.
func (r *Reporter) Report(items []Item, nodes int) {
	r.mu.Lock()
	r.items, r.fresh, r.nodes = items, true, max(nodes, 1)
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Status is what the reporter says of itself.
func (r *Reporter) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

// Run tells of what is reported until ctx ends; then it lets go of the lease and returns nil.
func (r *Reporter) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			// The lease is let go of although ctx has ended: it would keep the next holder waiting.
			r.stop(context.WithoutCancel(ctx), time.Now())
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

// step does one thing that is due, and returns when the next will be; zero: when something changes.
func (r *Reporter) step(ctx context.Context) time.Time {
	now := time.Now()
	nodes := r.take(now)
	next := r.stand(ctx, now, nodes)
	about, due, ok := r.ledger.next(now, r.campaign.leading)
	if ok {
		due = latest(due, r.deniedEvents)
		if !due.After(now) {
			r.tell(ctx, about, now)
		}
		if next.IsZero() || due.Before(next) {
			next = due
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.Subjects, r.status.Leading = r.ledger.present(), r.campaign.leading
	return next
}

// take brings what was reported to the ledger.
func (r *Reporter) take(now time.Time) (nodes int) {
	r.mu.Lock()
	items, fresh, nodes := r.items, r.fresh, r.nodes
	r.items, r.fresh = nil, false
	r.mu.Unlock()
	if fresh {
		all, leftOut := messages(items)
		r.ledger.report(all, now)
		r.mu.Lock()
		r.status.LeftOut = leftOut
		if len(all) == 0 { // nothing will be tried again
			clear(r.failing)
			r.status.Error = ""
		}
		r.mu.Unlock()
	}
	return nodes
}

// stand campaigns while there is something shared to tell that may be told, and returns when it will look again.
func (r *Reporter) stand(ctx context.Context, now time.Time, nodes int) (next time.Time) {
	switch {
	case !r.ledger.shared():
		r.stop(ctx, now)
		return time.Time{}
	case now.Before(r.deniedEvents): // another agent may be allowed what this one is not
		r.stop(ctx, now)
		return r.deniedEvents
	case now.Before(r.deniedLease):
		return r.deniedLease
	}
	r.campaign.start(now, nodes)
	if now.Before(r.campaign.next) {
		return r.campaign.next
	}
	err := r.campaign.look(ctx, now, nodes)
	if apierrors.IsForbidden(err) {
		r.deniedLease = now.Add(deniedFor + upTo(deniedFor))
	}
	r.note("lease", err)
	return r.campaign.next
}

func (r *Reporter) stop(ctx context.Context, now time.Time) {
	if r.campaign.running {
		r.note("lease", r.campaign.stop(ctx, now))
	}
}

// tell sends one event.
func (r *Reporter) tell(ctx context.Context, about subject, now time.Time) {
	res := r.sender.send(ctx, about, r.ledger.entries[about].message, now)
	if ctx.Err() != nil {
		return
	}
	r.note("event", res.event)
	if res.identity != nil || res.told {
		r.note("object "+about.kind, res.identity)
	}
	switch {
	case res.identity == nil && res.event == nil, res.told:
		r.ledger.done(about, now)
	case apierrors.IsForbidden(res.event):
		r.deniedEvents = now.Add(deniedFor + upTo(deniedFor))
		fallthrough
	default:
		r.ledger.failed(about, now)
	}
	if res.told {
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
		r.log.Warn("owners of objects are not told of problems as they should be; enforcement is not concerned", "err", err)
	}
}
