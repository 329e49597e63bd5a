package bpf

import (
	"errors"
	"testing"
	"time"
)

// rounds is a slicer with a clock: each slice takes a while, and so many make a round.
type rounds struct {
	clock         time.Time
	slice         time.Duration
	length, done  int
	slices, total int
	err           error
}

func (r *rounds) now() time.Time { return r.clock }
func (r *rounds) Close() error   { return nil }

func (r *rounds) Slice() (bool, error) {
	r.clock = r.clock.Add(r.slice)
	r.slices, r.total = r.slices+1, r.total+1
	if r.slices < r.length {
		return false, r.err
	}
	r.slices = 0
	r.done++
	return true, r.err
}

// run calls turn for as long as said, whenever it wants to be called, and returns the longest turn.
func (r *rounds) run(t *testing.T, s *sweeps, d time.Duration) (longest time.Duration) {
	t.Helper()
	for end := r.clock.Add(d); r.clock.Before(end); {
		start := r.clock
		next, err := s.turn()
		if !errors.Is(err, r.err) {
			t.Errorf("error %v, want %v", err, r.err)
		}
		longest = max(longest, r.clock.Sub(start))
		r.clock = r.clock.Add(max(next, time.Microsecond))
	}
	return longest
}

func newRounds(slice time.Duration, length int) (*rounds, *sweeps) {
	r := &rounds{clock: time.Unix(1, 0), slice: slice, length: length}
	return r, &sweeps{sweeper: r, now: r.now}
}

func TestARoundBeginsEveryFiveSeconds(t *testing.T) {
	r, s := newRounds(100*time.Microsecond, 4)
	longest := r.run(t, s, time.Minute)
	if r.done != 12 || longest > time.Millisecond {
		t.Errorf("%d rounds in a minute, longest turn %v; want 12, and a millisecond at most", r.done, longest)
	}
}

// A round of half a million flows takes 60 ms of CPU.
func TestALongRoundIsSpreadAndUsesHalfAPercent(t *testing.T) {
	r, s := newRounds(120*time.Microsecond, 500)
	longest := r.run(t, s, 2*time.Minute)
	if r.done != 10 || longest > sweepTurn+r.slice {
		t.Errorf("%d rounds in two minutes, longest turn %v", r.done, longest)
	}
}

// The error is said, and the next round begins no earlier than it would.
func TestAFailingRoundIsNotTriedAllTheTime(t *testing.T) {
	r, s := newRounds(time.Microsecond, 4)
	r.err = errors.New("no")
	r.run(t, s, time.Minute)
	if r.total != 48 {
		t.Errorf("%d slices, want 12 rounds of 4", r.total)
	}
}
