package bpfmaps

import (
	"errors"
	"fmt"
	"io"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/bpf"
)

// walkProgram is a program that walks over a flow table.
type walkProgram struct{ program, table string }

// sweepPrograms are the programs that remove expired flows.
var sweepPrograms = []walkProgram{
	{bpf.MargayProgSweep4, bpf.MargayMapCt4},
	{bpf.MargayProgSweep6, bpf.MargayMapCt6},
}

// Sweeper removes expired flows: it has the kernel walk over the flow tables, a slice at a time. The CPU goes on handling
// packets meanwhile.
//
// Not safe for concurrent use; of one instance's maps there must be one at a time.
type Sweeper struct {
	of    []walkProgram
	walks []*link.Iter  // in the order of them
	at    int           // of the walk that is next or under way
	file  io.ReadCloser // of the walk under way; nil: none is
}

// NewSweeper returns a sweeper that runs p's programs. Close it before p and the maps.
func (f *Flows) NewSweeper(p *Programs) (*Sweeper, error) { return f.newWalks(p, sweepPrograms) }

func (f *Flows) newWalks(p *Programs, list []walkProgram) (*Sweeper, error) {
	s := &Sweeper{of: list}
	for i, of := range list {
		program, err := p.Get(of.program)
		if err == nil {
			err = s.add(f, i, program)
		}
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// add has the sweeper run a program over its table, the i-th of its programs.
func (s *Sweeper) add(f *Flows, i int, program *ebpf.Program) error {
	table := [...]*ebpf.Map{f.ct4, f.ct6}[i]
	walk, err := link.AttachIter(link.IterOptions{Program: program, Map: table})
	if err != nil {
		return fmt.Errorf("make iterator %s over map %s: %w", s.of[i].program, s.of[i].table, err)
	}
	s.walks = append(s.walks, walk)
	return nil
}

// Slice looks at the next 1,024 flows or fewer. done: it was the last slice of a round over all tables, and the next
// call begins another one. After an error the walk over that table is given up, and the next call begins with the
// following one.
func (s *Sweeper) Slice() (done bool, err error) {
	name := s.of[s.at].program
	if s.file == nil {
		if s.file, err = s.walks[s.at].Open(); err != nil {
			return s.next(), fmt.Errorf("begin a walk of program %s: %w", name, err)
		}
	}
	_, err = s.file.Read(make([]byte, 1)) // the programs write nothing
	switch {
	case errors.Is(err, unix.EAGAIN): // the slice is over
		return false, nil
	case errors.Is(err, io.EOF):
		err = s.file.Close()
	default:
		err = errors.Join(fmt.Errorf("run program %s: %w", name, err), s.file.Close())
	}
	s.file = nil
	return s.next(), err
}

// next goes on to the following table; it says whether that is the first one again.
func (s *Sweeper) next() bool {
	s.at = (s.at + 1) % len(s.walks)
	return s.at == 0
}

// Close lets go of the iterators.
func (s *Sweeper) Close() error {
	var errs []error
	if s.file != nil {
		errs = append(errs, s.file.Close())
	}
	for _, walk := range s.walks {
		errs = append(errs, walk.Close())
	}
	return errors.Join(errs...)
}
