package iptables

import (
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/ipsets"
)

// nodeClass is the class of the node's own address, by IP version: that of packets which kube-proxy will give this address as their
// source.
type nodeClass struct {
	of      map[uint8]uint32
	pending bool // it has changed since the last plan, and the chains with it are not written yet
}

// locate notes the class of the node's first address of each IP version. It is in force with the next rejudge.
func locate(s *state) {
	addrs := s.nodeAddrs()
	for _, family := range families {
		i := slices.IndexFunc(addrs, func(a netip.Addr) bool { return familyOf(a) == family && a.IsGlobalUnicast() })
		if i >= 0 {
			s.static.node.of[family] = classFound(s, addrs[i])
		}
	}
}

// classFound returns the class that packets find for an address once the plan is complete. An entry that could not be written, for
// want of room in marks for example, has the class of the prefix around it: the author of a policy can make so many classes, and the
// chains must not fail on the id of one that no mark can have.
func classFound(s *state, a netip.Addr) uint32 {
	entry := s.plans.Compiler.Address(a).Entry
	class := entry.Class
	if entry.Prefix.IsValid() && s.addresses.unwritten.Missing(entry.Prefix) {
		class = s.refusals.TakenFor(entry.Prefix)
	}
	if _, err := s.addresses.marks.Class(class); err == nil {
		return class
	}
	// The plan has not come to this entry yet. It will be refused, and followNode runs after that.
	if e, ok := s.sets.of[familyOf(a)].class.Lookup(ipsets.Key{Prefix: single(a)}); ok {
		return s.addresses.marks.ClassOf(e.Mark.Value)
	}
	_, none := everything(familyOf(a))
	return none
}

// followNode writes the chains again if the node's address has another class than they have: an entry was refused, or written at last,
// after the plan had concluded.
func followNode(s *state) error {
	if !s.plans.Done() {
		return nil // the plan concludes with the class
	}
	locate(s)
	node := &s.static.node
	if node.pending = node.pending || s.static.differs(s.slots.uses); !node.pending {
		return nil
	}
	s.static.stale = true
	if err := s.static.rejudge(s.slots.uses); err != nil {
		return err
	}
	if err := s.commit(); err != nil {
		return err
	}
	node.pending = false
	return nil
}
