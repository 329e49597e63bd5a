package testutil

import (
	"testing"
	"time"
)

const pollInterval = 2 * time.Millisecond

// WaitFor polls done until it returns true; once limit is over it fails the test, naming what it waited for. It is for
// effects nothing reports, such as the kernel's own housekeeping: where there is a channel or a context, use that.
func WaitFor(t testing.TB, limit time.Duration, what string, done func() bool) {
	t.Helper()
	if done() {
		return
	}
	over := time.NewTimer(limit)
	defer over.Stop()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if done() {
				return
			}
		case <-over.C:
			if done() {
				return
			}
			t.Fatalf("waited %v for %s", limit, what)
		}
	}
}

// WaitForMore waits as WaitFor does until each count has grown by at least more. counts returns equally many each time.
func WaitForMore(t testing.TB, limit time.Duration, what string, more uint64, counts func() []uint64) {
	t.Helper()
	before := counts()
	WaitFor(t, limit, what, func() bool {
		for i, n := range counts() {
			if n < before[i]+more {
				return false
			}
		}
		return true
	})
}
