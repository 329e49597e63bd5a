package bpf

import (
	"errors"
	"time"

	"github.com/margay-project/margay/pkg/bpfmaps"
)

const (
	// sweepEvery is the least time from the beginning of one round over the flow tables to that of the next.
	sweepEvery = 5 * time.Second
	// sweepTurn bounds one call of Sweep, and sweepPause is the pause after it, for other work.
	sweepTurn, sweepPause = time.Millisecond, 50 * time.Millisecond
	// sweepShare bounds the CPU that rounds use: the next one begins when this many times the time that the last one
	// took has gone by.
	sweepShare = 200
)

// slicer does a part of a round over the flow tables, and says whether it was the last one.
type slicer interface {
	Slice() (done bool, err error)
	Close() error
}

// sweeps spreads rounds of a sweeper over time.
type sweeps struct {
	sweeper slicer
	now     func() time.Time
	began   time.Time     // of the round under way, or the last one
	spent   time.Duration // on it
	running bool          // a round is under way
}

// turn continues the round under way, or begins one when it is due. next is the time until the next call.
func (s *sweeps) turn() (next time.Duration, err error) {
	start := s.now()
	if !s.running {
		if wait := s.due().Sub(start); !s.began.IsZero() && wait > 0 {
			return wait, nil
		}
		s.began, s.spent, s.running = start, 0, true
	}
	var errs []error
	for took := time.Duration(0); s.running && took < sweepTurn; took = s.now().Sub(start) {
		done, err := s.sweeper.Slice()
		errs = append(errs, err)
		s.running = !done
	}
	end := s.now()
	s.spent += end.Sub(start)
	if s.running {
		return sweepPause, errors.Join(errs...)
	}
	return max(0, s.due().Sub(end)), errors.Join(errs...)
}

// due is when the round after the last one is to begin.
func (s *sweeps) due() time.Time { return s.began.Add(max(sweepEvery, sweepShare*s.spent)) }

// use makes the programs' sweeps those to run; the round under way is given up.
func (s *sweeps) use(m *bpfmaps.Maps, p *bpfmaps.Programs) error {
	sweeper, err := m.Flows.NewSweeper(p)
	if err != nil {
		return err
	}
	old := s.sweeper
	*s = sweeps{sweeper: sweeper, now: time.Now}
	if old == nil {
		return nil
	}
	return old.Close()
}

func (s *sweeps) close() error {
	if s.sweeper == nil {
		return nil
	}
	return s.sweeper.Close()
}
