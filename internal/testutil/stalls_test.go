package testutil

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestStallsAreNotCounted(t *testing.T) {
	begun := time.Now()
	at := func(d time.Duration) time.Time { return begun.Add(d * time.Millisecond) }
	s := &Stalls{next: at(5)}
	for _, tick := range []time.Duration{5, 11, 16, 1021, 1026, 1031, 2036} { // two stalls, of 1,000 ms each
		s.tick(at(tick))
	}
	for name, c := range map[string]struct{ from, until, want time.Duration }{
		"calm":                {0, 21, 21},
		"around a stall":      {10, 1025, 15},
		"within a stall":      {100, 200, 0},
		"begins in a stall":   {1000, 1030, 9},
		"ends in a stall":     {1025, 1500, 11},
		"around both":         {0, 2040, 40},
		"ends in a third one": {2030, 5000, 5},
	} {
		if got := s.Between(at(c.from), at(c.until)); got != c.want*time.Millisecond {
			t.Errorf("%s: %v, want %d ms", name, got, c.want)
		}
	}
}

func TestWatchedTimePassesWithoutStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, begun := WatchStalls(t), time.Now()
		time.Sleep(time.Second)
		if got := s.Since(begun); got != time.Second {
			t.Errorf("%v, want a second", got)
		}
	})
}
