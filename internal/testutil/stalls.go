package testutil

import (
	"sync"
	"testing"
	"time"
)

const (
	stallTick = 5 * time.Millisecond
	// stallFrom is how late a tick may be without counting: the scheduler of a calm machine is that late, too.
	stallFrom = 5 * time.Millisecond
)

// Stalls records the moments at which the machine did not let this process run, so that a test which demands that something
// comes within a time does not fail because the machine stood still meanwhile. It is safe for concurrent use.
type Stalls struct {
	mu   sync.Mutex
	next time.Time // when the next tick is due
	all  []stall   // in order; they do not overlap
}

type stall struct{ from, until time.Time }

// WatchStalls records stalls until the test ends.
func WatchStalls(t testing.TB) *Stalls {
	s := &Stalls{next: time.Now().Add(stallTick)}
	done, ended := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(done); <-ended })
	go func() {
		defer close(ended)
		timer := time.NewTimer(stallTick)
		defer timer.Stop()
		for {
			select {
			case <-done:
				return
			case <-timer.C:
				s.tick(time.Now())
				timer.Reset(stallTick)
			}
		}
	}()
	return s
}

// tick notes that the process runs.
func (s *Stalls) tick(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.next) > stallFrom {
		s.all = append(s.all, stall{s.next, now})
	}
	s.next = now.Add(stallTick)
}

// Between is how much time passed between two moments, without stalls.
func (s *Stalls) Between(from, until time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	passed := until.Sub(from)
	for _, x := range s.all {
		passed -= overlap(x, stall{from, until})
	}
	if until.Sub(s.next) > stallFrom { // a stall that ends just now
		passed -= overlap(stall{s.next, until}, stall{from, until})
	}
	return passed
}

// Since is how much time has passed since the moment, without stalls.
func (s *Stalls) Since(from time.Time) time.Duration { return s.Between(from, time.Now()) }

// overlap is how long both last at the same time.
func overlap(a, b stall) time.Duration {
	from, until := a.from, a.until
	if b.from.After(from) {
		from = b.from
	}
	if b.until.Before(until) {
		until = b.until
	}
	return max(0, until.Sub(from))
}
