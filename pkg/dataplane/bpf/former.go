package bpf

import (
	"hash/maphash"
	"maps"
	"net/netip"
)

// former is what is known of pods that have left before this agent started. The earlier one may have been killed when the maps did not have a pod
// any more, and the pod's connections were not removed yet. So until the first plan is in force an address without an owner counts as one that
// has changed it. Then the table is read once more, and from then on that holds for addresses that had connections.
type former struct {
	resumed bool                // there was an earlier agent, and the table has not been read since the first plan
	asked   map[netip.Addr]bool // addresses that count so, until they have an owner
	// others are interfaces that an agent with another map layout has judged, with their names: their endpoints had their addresses before.
	others  map[uint32]string
	due     bool     // the table is to be read
	reading *addrSet // what the reading under way finds; nil: it does not look for that
	found   *addrSet // addresses that had connections; nil: not known, or of no interest
}

// resume notes what earlier agents have attached, to which of the interfaces that there are.
func (f *former) resume(earlier Earlier, interfaces map[string]uint32) {
	f.resumed, f.others = earlier.Guarded || earlier.Others != nil, map[uint32]string{}
	for name, ifindex := range interfaces {
		if earlier.Others[ifindex] {
			f.others[ifindex] = name
		}
	}
}

// observe notes which interfaces there are. One that has come since has not been judged, whatever its number.
func (f *former) observe(interfaces map[string]uint32) {
	maps.DeleteFunc(f.others, func(ifindex uint32, name string) bool { return interfaces[name] != ifindex })
}

// asks reports whether an address without an owner may have connections of a former one, before an endpoint has it on an interface.
func (f *former) asks(ifindex uint32, a netip.Addr) bool {
	if _, judged := f.others[ifindex]; judged || f.asked[a] || !f.resumed && !f.found.has(a) {
		return false
	}
	f.asked[a] = true
	return true
}

// complete notes that the first plan is in force. tracks: the kernel has a table of connections.
func (f *former) complete(tracks bool) {
	f.resumed = f.resumed && tracks
	f.due = f.resumed && f.reading == nil
}

// survey begins to look for addresses that have connections, if that is due. It returns what notes one; nil: it is not due.
func (f *former) survey() (note func(netip.Addr)) {
	if !f.due {
		return nil
	}
	f.due, f.reading = false, newAddrSet()
	return f.reading.add
}

// surveyed notes that the reading under way has ended. One that has failed is due again.
func (f *former) surveyed(ok bool) {
	if ok && f.reading != nil {
		f.resumed, f.found = false, f.reading
	}
	f.reading = nil
}

// addrSet is a set of addresses of fixed size, since others decide how many connections there are. It may have addresses that were not added.
type addrSet struct {
	seed maphash.Seed
	bits [1 << 14]uint64
}

func newAddrSet() *addrSet { return &addrSet{seed: maphash.MakeSeed()} }

func (s *addrSet) place(a netip.Addr) (word int, bit uint64) {
	h := maphash.Comparable(s.seed, a)
	return int(h / 64 % uint64(len(s.bits))), 1 << (h % 64)
}

func (s *addrSet) add(a netip.Addr) {
	word, bit := s.place(a)
	s.bits[word] |= bit
}

// has reports whether the address was added. A nil set has none.
func (s *addrSet) has(a netip.Addr) bool {
	if s == nil {
		return false
	}
	word, bit := s.place(a)
	return s.bits[word]&bit != 0
}
