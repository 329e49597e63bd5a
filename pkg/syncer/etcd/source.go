// Package etcd brings the objects that Calico keeps in etcd v3.
package etcd

import (
	"context"
	"hash/maphash"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/syncer"
)

// Source is a syncer.Source whose datastore is etcd, in Calico's layout. All kinds are listed together at one revision and
// then watched together from that revision, so an order between objects of several kinds is kept.
//
// An object that became invalid stays as it was last good and is a Problem (semantics D-1); deleting it removes both.
//
// While etcd cannot be reached no object is withdrawn, and the source keeps trying to connect. When etcd is back the
// source resumes after the last change that it knows, if etcd still has that same change. If not (it has been compacted,
// or etcd was restored from a snapshot), the source lists again and delivers the difference.
//
// The source reads no changes unless the ClusterInformation "default" says that the datastore is ready. So a datastore
// that is wiped, empty, or being migrated changes nothing: the last known objects stay until it is ready again.
type Source struct {
	open    func(context.Context) (connection, error)
	explain func(error) string
	log     *slog.Logger
	objects *objects
	status  *statuses
	sink    func(syncer.Batch)
	// patience is how long a server that has the last change that is known has to send it again; a slow one has more.
	patience time.Duration
	// maxSilence is how long a watch may send nothing.
	maxSilence time.Duration

	at       position // newest that is known of the server
	mark     mark     // last change that was seen; zero: none since the last list
	ready    bool     // as the datastore says
	complete bool     // the objects are those of the datastore, up to mark
	inSync   bool     // InSync was sent
}

// New returns a source for those of all kinds that Calico keeps in etcd. It does no I/O.
func New(o Options, all []kinds.Kind, log *slog.Logger) *Source {
	s := newSource(o.open, all, log)
	s.explain = o.explain
	return s
}

func newSource(open func(context.Context) (connection, error), all []kinds.Kind, log *slog.Logger) *Source {
	l := newLayout(all)
	return &Source{open: open, log: log, explain: error.Error, objects: newObjects(l), status: newStatuses(l, log),
		patience: 500 * time.Millisecond, maxSilence: maxSilence}
}

// Run implements syncer.Source. It never fails.
func (s *Source) Run(ctx context.Context, sink func(syncer.Batch)) error {
	s.sink = sink
	s.deliver(nil)
	var pause time.Duration
	for ctx.Err() == nil {
		began, lists := time.Now(), s.status.rows[0].Lists
		err := s.session(ctx)
		if ctx.Err() != nil {
			break
		}
		lived := time.Since(began)
		if s.status.working() && lived >= lasting {
			pause = 0
		}
		s.status.failed(s.explain(err), expected(err))
		s.deliver(nil)
		limit := lastPause(err)
		if s.status.rows[0].Lists > lists {
			limit = listedPause
		}
		pause = min(max(2*pause, firstPause), limit)
		sleep(ctx, jitter(pause)-lived)
	}
	return nil
}

const (
	// The time from one attempt to the next, unless an attempt takes longer; jitter takes up to half of it. etcd that comes
	// back must be noticed well within a second, so that a list has its time, too.
	firstPause, longPause = 50 * time.Millisecond, 600 * time.Millisecond
	// untrustedPause is for what only a human will mend: certificates, passwords, rights.
	untrustedPause = 3 * time.Second
	// listedPause is for connections that end soon after a list, again and again: lists are what costs.
	listedPause = 5 * time.Second
	// lasting is how long a connection must have lasted for its end to be the first failure of a row.
	lasting = 5 * time.Second
)

// deliver passes updates on, together with changed problems and states of kinds.
func (s *Source) deliver(updates []model.Update) {
	b := syncer.Batch{Updates: updates, Problems: s.objects.drainFindings(), Kinds: s.status.drain(s.objects.counts, s.at.revision)}
	for i, log := range s.status.problems {
		log.Write(s.objects.drainTurns(i), time.Now())
	}
	if len(b.Updates)+len(b.Problems)+len(b.Kinds) > 0 {
		s.sink(b)
	}
}

// mark identifies a change: a revision, and a hash of its events.
type mark struct {
	revision int64
	sum      uint64 // of the events' hashes
}

// note adds an event to the hash. The order of the events of one revision does not matter.
func (m *mark) note(seed maphash.Seed, e event) {
	if e.modified != m.revision {
		*m = mark{revision: e.modified}
	}
	m.sum += maphash.Comparable(seed, [2]uint64{maphash.String(seed, e.key), maphash.Bytes(seed, e.value)})
	if e.deleted {
		m.sum++
	}
}

// jitter is a random time between half of d and d.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
