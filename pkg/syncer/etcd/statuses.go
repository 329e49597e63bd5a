package etcd

import (
	"log/slog"
	"time"

	"github.com/margay-project/margay/pkg/syncer"
)

// statusKind is the row that stands for the datastore itself, before those of the kinds.
const statusKind = "etcd"

// statuses are how it stands with the datastore and its kinds, as reported and logged. Failures are of the datastore, since
// all kinds are read together; the row of a kind says whether it has been listed, and how much of it is known.
type statuses struct {
	log      *slog.Logger
	rows     []syncer.KindStatus // the datastore, then the kinds
	sent     []syncer.KindStatus // nil: none were
	problems []*syncer.ProblemLog
	since    time.Time // of an outage that the log knows of; zero: there is none
	unready  string    // why nothing is believed; empty: it is
}

func newStatuses(l *layout, log *slog.Logger) *statuses {
	now := time.Now()
	s := &statuses{log: log, rows: []syncer.KindStatus{{Kind: statusKind, State: syncer.KindListing, Required: true, Since: now}}}
	for _, k := range l.kinds {
		s.rows = append(s.rows, syncer.KindStatus{Kind: k.Ref, State: syncer.KindListing, Required: true, Since: now})
		s.problems = append(s.problems, &syncer.ProblemLog{Log: log.With("kind", k.Ref)})
	}
	return s
}

// working reports whether the datastore was followed last.
func (s *statuses) working() bool { return s.rows[0].State == syncer.KindSynced }

// failed notes that the datastore cannot be followed. Expected: nothing is wrong with it, it has to be followed again.
func (s *statuses) failed(why string, expected bool) {
	row := &s.rows[0]
	row.Failures++
	row.Error = why
	s.enter(s.failing())
	if !s.since.IsZero() || expected {
		return
	}
	s.since = time.Now()
	meanwhile := "its last known objects stay in force"
	if !row.Listed {
		meanwhile = "nothing new is enforced before it has been listed"
	}
	s.log.Warn("etcd cannot be followed, will try again; "+meanwhile, "err", why)
}

// failing is the state of the datastore while it cannot be used.
func (s *statuses) failing() syncer.KindState {
	if s.rows[0].Listed {
		return syncer.KindFailing
	}
	return syncer.KindListing
}

// notReady notes that the datastore is not to be believed, and why; empty: it is.
func (s *statuses) notReady(why string) {
	if why != "" && why != s.unready {
		s.log.Warn("the datastore is not ready; what is known of it stays in force until it is", "why", why)
	}
	s.unready = why
	if why != "" {
		s.rows[0].Error = why
		s.enter(s.failing())
	}
}

// listed notes a full list.
func (s *statuses) listed() {
	for i := range s.rows {
		s.rows[i].Lists++
		s.rows[i].Listed = true
		if i > 0 && s.rows[i].State != syncer.KindSynced {
			s.rows[i].State, s.rows[i].Since = syncer.KindSynced, time.Now()
		}
	}
	s.works()
}

// works notes that the datastore is followed.
func (s *statuses) works() {
	if !s.since.IsZero() {
		s.log.Info("etcd is followed again", "outage", time.Since(s.since).Round(time.Millisecond))
	}
	s.since = time.Time{}
	s.rows[0].Error = ""
	s.enter(syncer.KindSynced)
}

// saw counts a change of an object of a kind.
func (s *statuses) saw(kind int) {
	s.rows[0].Events++
	s.rows[1+kind].Events++
}

func (s *statuses) enter(state syncer.KindState) {
	if row := &s.rows[0]; row.State != state {
		row.State, row.Since = state, time.Now()
	}
}

// drain returns the rows that have changed since the last time. counts are the objects that are known, by kind.
func (s *statuses) drain(counts []int, revision int64) []syncer.KindStatus {
	total := 0
	for i, n := range counts {
		s.rows[1+i].Objects = n
		total += n
	}
	s.rows[0].Objects, s.rows[0].Revision = total, revision
	var changed []syncer.KindStatus
	for i, row := range s.rows {
		if s.sent == nil || s.sent[i] != row {
			changed = append(changed, row)
		}
	}
	s.sent = append(s.sent[:0:0], s.rows...)
	return changed
}
