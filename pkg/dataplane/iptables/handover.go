package iptables

import "github.com/margay-project/margay/pkg/compile/chains"

// Learn adds flows to the kernel's conntrack. What policy has allowed gets the mark. keep: the mark is that of policy in force,
// since existing connections are left alone; otherwise, that of flows to be judged again.
type Learn func(mark chains.Value, keep bool) error

// InForce reports whether packets of both IP versions are judged.
func (e *Enforced) InForce() bool { return len(e.of) == len(families) }

// learn has the kernel know the flows of another dataplane. It tracks all flows that begin from now on: chains that need it are
// written.
func (s *state) learn() error {
	if s.world.inForce || s.static.learning == nil {
		return nil
	}
	number := uint32(toBeJudged)
	if s.static.keep {
		number = s.static.generation.number
	}
	mark, err := s.static.base.Marks.Generation(number)
	if err != nil {
		return err
	}
	return s.static.learning(mark, s.static.keep)
}
