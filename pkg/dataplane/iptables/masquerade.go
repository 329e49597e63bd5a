package iptables

import (
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/ipsets"
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
func locate(s *state) {
	addrs := s.nodeAddrs()
	for _, family := range families {
		of := s.static.node.of[family]
		now := slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool { return familyOf(a) != family || !a.IsGlobalUnicast() })
		if len(now) > 0 {
			of.class = classFound(s, now[0])
		}
		if !slices.Equal(now, of.addrs) {
			of.addrs, of.version = now, of.version+1
		}
		s.static.node.of[family] = of
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
