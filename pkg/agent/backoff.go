package agent

import "time"

const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// backoff is when to try again: after 100 ms first, doubling to 10 s with every retry that fails. Attempts in between,
// for something new, neither delay the next retry nor make it rarer.
type backoff struct {
	timer   *time.Timer
	armed   bool
	running bool // the attempt that is about to be made is a retry
	next    time.Duration
}

func newBackoff() *backoff {
	b := &backoff{timer: time.NewTimer(time.Hour), next: firstRetry}
	b.timer.Stop()
	return b
}

// fired records that the timer has gone off.
func (b *backoff) fired() { b.armed, b.running = false, true }

// after records how an attempt ended.
func (b *backoff) after(ok bool) {
	retried := b.running
	b.running = false
	if ok {
		b.timer.Stop()
		b.armed, b.next = false, firstRetry
		return
	}
	if retried {
		b.next = min(2*b.next, lastRetry)
	}
	if !b.armed {
		b.timer.Reset(b.next)
		b.armed = true
	}
}
