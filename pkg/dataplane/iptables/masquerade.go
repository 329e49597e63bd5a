package iptables

import (
	"net/netip"
	"slices"
)

// masquerade is what packets get that kube-proxy masquerades, by IP version: an address of the node as their source, and its class.
type masquerade struct {
	of      map[uint8]masqueradeOf
	pending bool // it has changed since the last plan, and the chains with it are not written yet
}

// masqueradeOf is that of one IP version.
type masqueradeOf struct {
	class   uint32 // of the first address
	addrs   []netip.Addr
	version uint64 // of addrs
}

// locate notes the node's addresses of each IP version, and the class of the first. They are in force with the next rejudge.
func (s *static) locate(addrs []netip.Addr, classOf func(netip.Addr) uint32) {
	for _, family := range families {
		of := s.node.of[family]
		now := slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool { return familyOf(a) != family || !a.IsGlobalUnicast() })
		if len(now) > 0 {
			of.class = classOf(now[0])
		}
		if !slices.Equal(now, of.addrs) {
			of.addrs, of.version = now, of.version+1
		}
		s.node.of[family] = of
	}
}

// isMisplaced reports whether the chains of an IP version that is used may have other addresses of the node, or another class of
// them, than locate has noted. Then the next rejudge makes live flows be judged again. It stays so until located.
func (s *static) isMisplaced(used func(family uint8) bool) bool {
	if s.node.pending = s.node.pending || s.differs(used); s.node.pending {
		s.markStale()
	}
	return s.node.pending
}

// located notes that chains with what locate has noted are written.
func (s *static) located() { s.node.pending = false }
