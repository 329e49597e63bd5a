package verify

import (
	"net/netip"

	"github.com/margay-project/margay/pkg/model"
)

// Holds reports whether a difference still concerns an address that has the same sets and class as when it was found. contains reports
// whether an address is a member of a set now, and entry returns the kernel's entry of an address. The first remote address for which
// nothing has changed replaces the one in the packet.
func (c *Comparison) Holds(p *model.DirectionPolicy, f *Difference, contains func(model.SetID, netip.Addr) bool, entry func(netip.Addr) (Entry, error)) (bool, error) {
	mine := NewAtoms()
	mine.AddPolicy(p)
	same := func(a netip.Addr, s Signature) bool {
		for id := range mine.sets {
			if contains(id, a) != s.has(c.Atoms.sets[id]) {
				return false
			}
		}
		return true
	}
	own, remote := f.Packet.Dst, &f.Packet.Src
	if p.Direction == model.Egress {
		own, remote = f.Packet.Src, &f.Packet.Dst
	}
	if !same(own, c.Of(own)) {
		return false, nil
	}
	for _, a := range f.Some {
		now, err := entry(a)
		if err != nil {
			return false, err
		}
		if now.Class == f.Class && same(a, f.signature) {
			*remote = a
			return true, nil
		}
	}
	return false, nil
}
