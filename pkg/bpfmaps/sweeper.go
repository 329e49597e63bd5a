package bpfmaps

import (
	"errors"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
)

// sweepPrograms are the programs that remove expired flows.
var sweepPrograms = [2]walkProgram{
	{bpf.MargayProgSweep4, bpf.MargayMapCt4, bpf.MargayMapWalk4},
	{bpf.MargayProgSweep6, bpf.MargayMapCt6, bpf.MargayMapWalk6},
}

// Sweeper removes expired flows: it has programs look at those of all flow tables, a slice at a time. The CPU goes on handling packets
// meanwhile.
//
// Not safe for concurrent use; of one instance's maps there must be one at a time.
type Sweeper struct {
	walks [2]walker
	at    int // of the walk that is next or under way
}

// NewSweeper returns a sweeper that runs p's programs. Close it before the maps.
func (f *Flows) NewSweeper(p *Programs) (*Sweeper, error) { return f.newWalks(sweepPrograms, p.Get) }

// newWalks returns a sweeper that runs the programs of a list, which get returns. They may be closed afterwards.
func (f *Flows) newWalks(list [2]walkProgram, get func(name string) (*ebpf.Program, error)) (*Sweeper, error) {
	var programs [2]*ebpf.Program
	for i, of := range list {
		program, err := get(of.program)
		if err != nil {
			return nil, err
		}
		programs[i] = program
	}
	walk4, err := newWalk[bpf.Ct4Key](list[0], programs[0], f.ct4, f.walk4)
	if err != nil {
		return nil, err
	}
	walk6, err := newWalk[bpf.Ct6Key](list[1], programs[1], f.ct6, f.walk6)
	if err != nil {
		return nil, errors.Join(err, walk4.close())
	}
	return &Sweeper{walks: [2]walker{walk4, walk6}}, nil
}

// Slice looks at the next bpf.WalkedKeys flows or fewer. done: it was the last slice of a round over all tables, and the next
// call begins another one. After an error the walk over that table is given up, and the next call begins with the
// following one.
func (s *Sweeper) Slice() (done bool, err error) {
	over, err := s.walks[s.at].part()
	if over {
		s.at = (s.at + 1) % len(s.walks)
	}
	return over && s.at == 0, err
}

// Close lets go of the programs.
func (s *Sweeper) Close() error {
	return errors.Join(s.walks[0].close(), s.walks[1].close())
}
