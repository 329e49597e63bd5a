package agent

import (
	"errors"
	"slices"
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

// maxStuckRetries is the number of failed retries, in about three seconds, of changes that keep others waiting. After them
// the dataplane is reopened and given the state that is desired by then.
const maxStuckRetries = 5

// progress is how far enforcement has come. Pure.
type progress struct {
	status Status
	retry  bool  // held-back endpoints are to be tried again
	stuck  int   // retries that ended with ErrStuck since the last attempt without an error
	reopen bool  // the dataplane is to be reopened
	closed error // why the last attempt to do so failed; nil: it did not

	turning bool // the graph changes network sets in parts, or has room for more of them, and the next flush has more of it
	behind  bool // the last attempt has left changes unwritten

	late time.Time // since when members of sets are late to leave; zero: there are none
}

// mostLate is how long members of sets stay for policy that is not in force yet. It may never be, and others wait for that of theirs.
const mostLate = 5 * time.Second

// lingers reports whether members of sets that are late to leave, if there are any, stay longer: policy of an endpoint is still being made.
func (p *progress) lingers(late bool, states []dataplane.EndpointStatus, now time.Time) bool {
	switch {
	case !late:
		p.late = time.Time{}
		return false
	case p.late.IsZero():
		p.late = now
	}
	return now.Sub(p.late) < mostLate && slices.ContainsFunc(states, func(s dataplane.EndpointStatus) bool { return s.Condition == dataplane.Pending })
}

// complete reports whether everything is enforced that is desired, or could be without a change.
func (p *progress) complete() bool { return p.status.Ready && !p.retry && !p.turning }

// attempted records how an attempt ended; its error is the dataplane's. That single endpoints are held back is no
// failure.
func (p *progress) attempted(a *Attempt, err error) {
	if held, ok := err.(*dataplane.HeldBack); ok {
		a.Held, err = held, nil
	}
	a.Err = err
	s := &p.status
	s.Applies++
	switch {
	case a.Reopen:
		p.closed = err
	case err == nil:
		p.stuck = 0
	case a.Retry && errors.Is(err, dataplane.ErrStuck): // another error may say only that this attempt did not come to the changes
		p.stuck++
		p.reopen = p.stuck >= maxStuckRetries
	}
	if err != nil {
		s.Failed++
		s.Ready, s.Error = false, err.Error()
		return
	}
	a.First = !s.InSync
	s.InSync, s.Ready, s.Error, s.Held = true, true, "", ""
	p.retry = a.Held != nil && a.Held.Retry
	if a.Held != nil {
		s.Held = a.Held.Error()
	}
	s.Applied, s.Took = a.Started, a.Took
}

// waiting says why changes do not come to the dataplane; empty: they do.
func (p *progress) waiting() string {
	if p.closed == nil {
		return ""
	}
	return "the dataplane cannot be reopened: " + p.closed.Error()
}

// reopened records that the dataplane was reopened.
func (p *progress) reopened() { p.reopen, p.stuck, p.closed = false, 0, nil }
