package iptables

import "errors"

// followsRoutes reports whether the node's kernel may follow source routes of IPv4 packets.
func (k *Kernel) followsRoutes() bool { return k.SourceRoutes == nil || k.SourceRoutes() }

// searchRoutes makes chains search the packets of pods for source routes, or stop that. The program that finds them costs each packet
// about a hundredth of a round trip, and a kernel that follows no source routes drops such packets itself.
func (s *state) searchRoutes(search bool) error {
	s.static.base.Kernel.SourceRoutes = search
	if s.world.searching == search {
		return nil
	}
	if s.begun {
		if err := errors.Join(s.static.rewrite(), s.world.lead(), s.commit()); err != nil {
			return err
		}
	}
	s.world.searching = search
	return nil
}
