package agent

import (
	"time"

	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
)

// latencies are measured by how long changes wait to be enforced.
type latencies interface {
	ChangeEnforced(time.Duration)
	PodEnforced(time.Duration)
}

// latency measures from the arrival of changes to their being enforced.
type latency struct {
	to latencies

	since   time.Time                      // arrival of the oldest change that was drained and is not enforced; zero: none
	waiting map[model.EndpointID]time.Time // new endpoints that are not enforced, since they arrived
	known   map[model.EndpointID]bool      // endpoints that the dataplane had after the last attempt
}

func newLatency(to latencies) *latency {
	return &latency{to: to, waiting: map[model.EndpointID]time.Time{}, known: map[model.EndpointID]bool{}}
}

// Observe implements observer.
func (l *latency) Observe(o Outcome) {
	if l.since.IsZero() {
		l.since = o.Batch.Since
	}
	for id, since := range o.Batch.Pods {
		if _, waits := l.waiting[id]; !waits && !l.known[id] {
			l.waiting[id] = since
		}
	}
	if o.Enforced() && !l.since.IsZero() {
		l.to.ChangeEnforced(o.Ended.Sub(l.since))
		l.since = time.Time{}
	}
	if o.Apply != nil {
		l.endpoints(o)
	}
}

// endpoints measures each new endpoint that is enforced for the first time.
func (l *latency) endpoints(o Outcome) {
	clear(l.known)
	for _, s := range o.States {
		l.known[s.ID] = true
		if since, ok := l.waiting[s.ID]; ok && s.Condition == dataplane.Enforced {
			l.to.PodEnforced(o.Ended.Sub(since))
			delete(l.waiting, s.ID)
		}
	}
	if o.Apply.Err != nil {
		return // the dataplane may not have them yet
	}
	for id := range l.waiting {
		if !l.known[id] {
			delete(l.waiting, id) // it has gone again
		}
	}
}
