package agent

import (
	"sync"
	"time"

	"github.com/margay-project/margay/pkg/dataplane"
)

// Status is what an agent says of itself at one moment.
type Status struct {
	InSync  bool // the first full snapshot has been enforced
	Ready   bool // in sync, and the last attempt enforced all that can be
	Applied time.Time
	Took    time.Duration // of the last successful application
	Error   string        // of the last attempt
	Held    string        // the endpoints whose policy cannot be enforced, a line each, though the agent is ready
	Applies uint64
	Failed  uint64
}

// statusBox is written by the loop and read by anyone.
type statusBox struct {
	mu    sync.Mutex // guards s and retry
	s     Status
	retry bool // what is held back is to be tried again
}

// heldBack takes what concerns single endpoints only out of an Apply's error.
func heldBack(err error) (*dataplane.HeldBack, error) {
	if held, ok := err.(*dataplane.HeldBack); ok {
		return held, nil
	}
	return nil, err
}

// done reports whether everything is enforced that is desired, or could be without a change.
func (b *statusBox) done() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.s.Ready && !b.retry
}

// applied notes one attempt and reports whether it was the first success; that single endpoints are held back is no
// failure.
func (b *statusBox) applied(at time.Time, took time.Duration, err error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.s.Applies++
	held, err := heldBack(err)
	if err != nil {
		b.s.Failed++
		b.s.Ready = false
		b.s.Error = err.Error()
		return false
	}
	first := !b.s.InSync
	b.s.InSync, b.s.Ready, b.s.Error, b.s.Held = true, true, "", ""
	if held != nil {
		b.s.Held = held.Error()
	}
	b.retry = held != nil && held.Retry
	b.s.Applied, b.s.Took = at, took
	return first
}

func (b *statusBox) get() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.s
}

// Status is the loop's current status.
func (l *Loop) Status() Status { return l.status.get() }
