package agent

import (
	"sync"
	"time"
)

// Status is what an agent says of itself at one moment.
type Status struct {
	InSync  bool      `json:"inSync"` // the first full snapshot has been enforced
	Ready   bool      `json:"ready"`  // in sync, and the last attempt to enforce succeeded
	Applied time.Time `json:"applied"`
	Took    string    `json:"took"`            // the last successful application
	Error   string    `json:"error,omitempty"` // of the last attempt
	Applies uint64    `json:"applies"`
	Failed  uint64    `json:"failed"`
}

// statusBox is written by the loop and read by anyone.
type statusBox struct {
	mu sync.Mutex // guards s
	s  Status
}

// applied notes one attempt and reports whether it was the first success.
func (b *statusBox) applied(at time.Time, took time.Duration, err error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.s.Applies++
	if err != nil {
		b.s.Failed++
		b.s.Ready = false
		b.s.Error = err.Error()
		return false
	}
	first := !b.s.InSync
	b.s.InSync, b.s.Ready, b.s.Error = true, true, ""
	b.s.Applied, b.s.Took = at, took.String()
	return first
}

func (b *statusBox) get() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.s
}

// Status is the loop's current status.
func (l *Loop) Status() Status { return l.status.get() }
