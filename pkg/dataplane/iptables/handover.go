package iptables

import "github.com/margay-project/margay/pkg/compile/chains"

// Learn adds flows to the kernel's conntrack. Flows that policy has allowed get the mark. keep: existing connections stay allowed,
// so the mark is that of the policy in force; otherwise it is that of flows to be judged again.
type Learn func(mark chains.Value, keep bool) error

// InForce reports whether packets of both IP versions are judged.
func (e *Enforced) InForce() bool { return len(e.of) == len(families) }

// learn adds the flows of another dataplane to the kernel's conntrack. Flows that begin meanwhile are tracked already, because
// chains that need conntrack are written.
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
