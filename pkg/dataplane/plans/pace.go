package plans

import "time"

const (
	// paceShare is how much of the time parts of large policies may take while others' changes come in: one of so many.
	paceShare = 4
	// paceHold is how long after such a change that holds.
	paceHold = 2 * time.Second
	// paceDelay is how long others' changes may wait for a plan of large policies, unless it takes longer than half of that however little
	// is in it.
	paceDelay = 100 * time.Millisecond
	// firstPart is what a part is expected to cost before one was measured: one that has much to write.
	firstPart = paceDelay / 2
)

// Pace says when large policies may be gone on with, and in how many parts at once. While no other changes are pending, the plans
// follow each other at once. From the moment a change comes in between them, the agent rests after each plan for three times as long as
// it took: otherwise most changes would find it busy, since somebody who changes large policies all the time can keep it so.
//
// A plan does one part, unless its overhead is larger: what it costs however little is in it. Then it does as many as take as long as
// that, so that many large policies together cost no more than a few times their parts.
type Pace struct {
	now   func() time.Time
	until time.Time     // the plans are spread out
	next  time.Time     // earliest start of a plan, until then
	part  time.Duration // what a part costs; it is forgotten slowly, since not all parts cost the same
	parts int           // of the next plan

	yielded bool // see Yield
}

// NewPace returns a Pace by a clock.
func NewPace(now func() time.Time) *Pace { return &Pace{now: now, part: firstPart, parts: 1} }

// Interrupted records a change that came in while there was a part to be compiled.
func (p *Pace) Interrupted() { p.until = p.now().Add(paceHold) }

// Yield is called after the plan of a change, when there is a part to be compiled. It reports whether that is left to a later call of
// CarryOut: every second time, if no part was compiled in between.
func (p *Pace) Yield() bool {
	p.yielded = !p.yielded
	return p.yielded
}

// Took records that a plan of Parts has taken so long, of which overhead would have been the same with fewer.
func (p *Pace) Took(d, overhead time.Duration) {
	p.next, p.yielded = p.now().Add(d*(paceShare-1)), false
	if overhead > 0 { // else nothing was written to which that applies
		p.part = max((d-overhead)/time.Duration(p.parts), p.part*7/8, 1)
		p.parts = int(max(roomFor(overhead)/p.part, 1))
	}
}

// roomFor is how long the parts of a plan may take that has so much overhead.
func roomFor(overhead time.Duration) time.Duration {
	if overhead < paceDelay {
		return min(overhead, paceDelay-overhead)
	}
	return overhead
}

// Parts is how many parts of large policies the next plan is to do.
func (p *Pace) Parts() int { return p.parts }

// Wait is how long until the next part may be compiled; 0: now.
func (p *Pace) Wait() time.Duration {
	if p.now().After(p.until) {
		return 0
	}
	return max(0, p.next.Sub(p.now()))
}
