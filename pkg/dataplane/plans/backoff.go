package plans

import "time"

const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// Backoff says when to try again what the kernel refuses to take, while everything else goes on. The time between two
// attempts doubles with each failure, so that they cost the others little.
type Backoff struct {
	now  func() time.Time
	wait time.Duration // before the next attempt; 0: nothing is refused
	next time.Time
}

// NewBackoff returns a Backoff by a clock, with nothing refused.
func NewBackoff(now func() time.Time) *Backoff { return &Backoff{now: now} }

// Failed records that something was refused, and puts off the next attempt.
func (b *Backoff) Failed() {
	if now := b.now(); !now.Before(b.next) {
		b.wait = min(max(2*b.wait, firstRetry), lastRetry)
		b.next = now.Add(b.wait)
	}
}

// Reset begins again: nothing is refused.
func (b *Backoff) Reset() { b.wait, b.next = 0, time.Time{} }

// Room makes the next attempt due: there may be room now.
func (b *Backoff) Room() { b.next = time.Time{} }

// Due reports whether it is time for the next attempt.
func (b *Backoff) Due() bool { return !b.now().Before(b.next) }

// Wait is the time until the next attempt is due; 0: now.
func (b *Backoff) Wait() time.Duration { return max(0, b.next.Sub(b.now())) }
