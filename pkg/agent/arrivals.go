package agent

import (
	"sync"
	"time"

	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
)

// arrivals knows since when changes wait to be enforced. The source notes what comes, the loop what it took and what is
// enforced. What came before the first snapshot was complete is not measured: nothing waits for an agent that starts.
type arrivals struct {
	node string

	mu      sync.Mutex // guards all below
	inSync  bool
	oldest  time.Time // of changes the loop has not taken; zero: there are none
	taken   time.Time // of changes taken and not enforced; zero: there are none
	local   map[model.EndpointID]bool
	waiting map[model.EndpointID]time.Time // local endpoints that are new, since they came
}

func newArrivals(node string) *arrivals {
	return &arrivals{node: node, local: map[model.EndpointID]bool{}, waiting: map[model.EndpointID]time.Time{}}
}

// note takes note of updates that the source has just delivered.
func (a *arrivals) note(updates []model.Update, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, u := range updates {
		switch u := u.(type) {
		case model.InSync:
			a.inSync = true
		case model.EndpointUpdate:
			a.endpoint(u, now)
		}
	}
	if a.inSync && a.oldest.IsZero() {
		a.oldest = now
	}
}

func (a *arrivals) endpoint(u model.EndpointUpdate, now time.Time) {
	if u.Endpoint == nil || u.Endpoint.Node != a.node {
		if a.local[u.ID] {
			delete(a.local, u.ID)
			delete(a.waiting, u.ID)
		}
		return
	}
	if a.local[u.ID] {
		return
	}
	a.local[u.ID] = true
	if a.inSync {
		a.waiting[u.ID] = now
	}
}

// take takes note that the loop has taken what came so far.
func (a *arrivals) take() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.taken.IsZero() {
		a.taken = a.oldest
	}
	a.oldest = time.Time{}
}

// enforced takes note that everything taken is enforced, and returns how long the oldest change has waited for that;
// not ok if there was none.
func (a *arrivals) enforced(now time.Time) (waited time.Duration, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.taken.IsZero() {
		return 0, false
	}
	waited, a.taken = now.Sub(a.taken), time.Time{}
	return waited, true
}

// pods takes note of endpoints as the dataplane has them, and returns how long each that became enforced for the first
// time has waited for that since its address appeared.
func (a *arrivals) pods(states []dataplane.EndpointStatus, now time.Time) (waited []time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.waiting) == 0 {
		return nil
	}
	for _, s := range states {
		if since, ok := a.waiting[s.ID]; ok && s.Condition == dataplane.Enforced {
			waited = append(waited, now.Sub(since))
			delete(a.waiting, s.ID)
		}
	}
	return waited
}
