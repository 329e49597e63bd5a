package plans

import "time"

const (
	// paceShare is how much of the time parts of large policies may take while others' changes come in: one of so many.
	paceShare = 4
	// paceHold is how long after such a change that holds.
	paceHold = 2 * time.Second
)

// Pace says when the next part of a large policy may be compiled. While no other changes are pending, the parts follow each
// other at once. From the moment a change comes in between them, the agent rests after each part for three times as long as
// it took: otherwise most changes would find it busy, since somebody who changes large policies all the time can keep it so.
type Pace struct {
	now   func() time.Time
	until time.Time // the parts are spread out
	next  time.Time // earliest start of a part, until then
}

// NewPace returns a Pace by the wall clock.
func NewPace() *Pace { return &Pace{now: time.Now} }

// Interrupted records a change that came in while there was a part to be compiled.
func (p *Pace) Interrupted() { p.until = p.now().Add(paceHold) }

// Took records that a part has taken so long, and is done.
func (p *Pace) Took(d time.Duration) { p.next = p.now().Add(d * (paceShare - 1)) }

// Wait is how long until the next part may be compiled; 0: now.
func (p *Pace) Wait() time.Duration {
	if p.now().After(p.until) {
		return 0
	}
	return max(0, p.next.Sub(p.now()))
}
