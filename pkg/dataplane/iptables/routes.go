package iptables

// followsRoutes reports whether the node's kernel may follow source routes of IPv4 packets.
func (k *Kernel) followsRoutes() bool { return k.SourceRoutes == nil || k.SourceRoutes() }

// search makes the chains written from now on search packets, or not. It reports whether those that are written do otherwise.
func (s *static) search(search bool) (differs bool) {
	s.base.Kernel.SourceRoutes = search
	return s.searching != search
}

// searched notes that all chains are as search has demanded.
func (s *static) searched() { s.searching = s.base.Kernel.SourceRoutes }
