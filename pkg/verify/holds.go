package verify

import (
	"net/netip"

	"github.com/margay-project/margay/pkg/model"
)

// Holds reports whether a difference that was found before concerns addresses that are still what they were then. contains
// says of which sets an address is a member now, entry is the kernel's entry of one. A remote address for which that is so
// takes the place of the one in the packet.
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
