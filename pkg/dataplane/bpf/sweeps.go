package bpf

import (
	"errors"
	"log/slog"
	"os"
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

// sweeps spreads rounds of a sweeper over time. Timeouts are built into its programs. Those of this agent are in force, and pinned,
// after its first Apply: the configuration may lack what the datastore says until then. Before that the agent goes on with the
// pinned programs of the agent before, so that no flow ends by a timeout that is not in force. If none are pinned, there are no flows
// of an earlier agent that swept.
type sweeps struct {
	sweeper   slicer
	maps      *bpfmaps.Maps
	confirmed bool              // there was an Apply
	next      *bpfmaps.Programs // the programs of the rounds to come; nil: those of sweeper

	now     func() time.Time
	began   time.Time     // of the round under way, or the last one
	spent   time.Duration // on it
	running bool          // a round is under way
}

// turn continues the round under way, or begins one when it is due. next is the time until the next call.
func (s *sweeps) turn() (next time.Duration, err error) {
	start := s.now()
	var errs []error
	if !s.running {
		if wait := s.due().Sub(start); !s.began.IsZero() && wait > 0 {
			return wait, nil
		}
		errs = append(errs, s.renew())
		s.began, s.spent, s.running = start, 0, true
	}
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

// open has the pinned programs do the rounds, or those of p if none are pinned.
func (s *sweeps) open(m *bpfmaps.Maps, p *bpfmaps.Programs, log *slog.Logger) error {
	*s = sweeps{maps: m, now: time.Now}
	pinned, err := m.PinnedSweeper()
	if err == nil {
		s.sweeper = pinned
		return nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		log.Warn("the flow timeouts in force are not known: flows expire by those of flags, environment and file until the datastore is read", "err", err)
	}
	own, err := m.Flows.NewSweeper(p)
	if err != nil {
		return err
	}
	s.sweeper = own
	return nil
}

// confirm says that the configuration of p is in force.
func (s *sweeps) confirm(p *bpfmaps.Programs) {
	if !s.confirmed {
		s.confirmed, s.next = true, p
	}
}

// replace says that p are the programs from here on; those before may be closed.
func (s *sweeps) replace(p *bpfmaps.Programs) {
	if s.confirmed {
		s.next = p
	}
}

// renew has the programs in force do the round that is about to begin, and pins them for the next agent. After an error the next
// round tries again.
func (s *sweeps) renew() error {
	if s.next == nil {
		return nil
	}
	sweeper, err := s.maps.Flows.NewSweeper(s.next)
	if err != nil {
		return err
	}
	old := s.sweeper
	s.sweeper = sweeper
	if err := errors.Join(old.Close(), s.maps.PinSweeps(s.next)); err != nil {
		return err
	}
	s.next = nil
	return nil
}

func (s *sweeps) close() error {
	if s.sweeper == nil {
		return nil
	}
	return s.sweeper.Close()
}
