package bpf

import "time"

const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// backoff says when to try again what the kernel refuses to take, while everything else goes on. The time between two
// attempts doubles with each failure, so that they cost the others little.
type backoff struct {
	now  func() time.Time
	wait time.Duration // before the next attempt; 0: nothing is refused
	next time.Time
}

func newBackoff() *backoff { return &backoff{now: time.Now} }

// failed records that something was refused, and puts off the next attempt.
func (b *backoff) failed() {
	if now := b.now(); !now.Before(b.next) {
		b.wait = min(max(2*b.wait, firstRetry), lastRetry)
		b.next = now.Add(b.wait)
	}
}

// reset begins again: nothing is refused.
func (b *backoff) reset() { b.wait, b.next = 0, time.Time{} }

// room makes the next attempt due: there may be room now.
func (b *backoff) room() { b.next = time.Time{} }

// due reports whether it is time for the next attempt.
func (b *backoff) due() bool { return !b.now().Before(b.next) }
