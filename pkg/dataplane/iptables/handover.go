package iptables

import (
	"net/netip"

	"github.com/margay-project/margay/pkg/compile/chains"
)

// Learned says how the kernel's conntrack is to know flows of the dataplane that judged until now.
type Learned struct {
	// Mark is what flows get that policy has allowed. Keep: existing connections stay allowed, so the mark is that of the policy in
	// force; otherwise it is that of flows to be judged again.
	Mark chains.Value
	Keep bool
	// Lone is what connections get of which the opener is not known: a pod has sent their first packet, from an address that its node
	// routes elsewhere. It has the mask of Mark.
	Lone chains.Value
	// Owners are the interfaces of the endpoints that have addresses by now.
	Owners map[netip.Addr]string
}

// Learn adds flows to the kernel's conntrack.
type Learn func(Learned) error

// InForce reports whether packets of both IP versions are judged.
func (e *Enforced) InForce() bool { return len(e.of) == len(families) }

// learn adds the flows of another dataplane to the kernel's conntrack. Flows that begin meanwhile are tracked already, because
// chains that need conntrack are written.
func (s *static) learn(owners func() map[netip.Addr]string) error {
	if s.world.inForce || s.learning == nil {
		return nil
	}
	number := chains.ToBeJudged
	if s.keep {
		number = s.generation.number
	}
	mark, err := s.base.Marks.Generation(number)
	if err != nil {
		return err
	}
	return s.learning(Learned{Mark: mark, Lone: s.base.Marks.Lone(), Keep: s.keep, Owners: owners()})
}
