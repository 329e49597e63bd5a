package classes

import (
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// Class ids of addresses in no set at all.
const (
	None4 uint32 = 0
	None6 uint32 = 1
)

// Class is a set of addresses that are members of exactly the same sets, so that no rule on this node can tell them
// apart. The classes None4 and None6 always exist and have no sets.
type Class struct {
	ID     uint32
	Family uint8    // 4 or 6
	Sets   []uint32 // set numbers, ascending, from 1
}

// Has reports whether the class is in the set.
func (c Class) Has(set uint32) bool {
	_, ok := slices.BinarySearch(c.Sets, set)
	return ok
}

// HasAll reports whether the class is in all of the sets; 0 is no set.
func (c Class) HasAll(sets []uint32) bool {
	return !slices.ContainsFunc(sets, func(s uint32) bool { return s != 0 && !c.Has(s) })
}

// HasNone reports whether the class is in none of the sets; 0 is no set.
func (c Class) HasNone(sets []uint32) bool {
	return !slices.ContainsFunc(sets, func(s uint32) bool { return s != 0 && c.Has(s) })
}

// AddrChange is the new entry of an address (a full-length prefix) or prefix; Gone: it has none any more.
type AddrChange struct {
	Prefix netip.Prefix
	Class  uint32
	Flags  AddrFlags
	// Endpoint owns the address if Flags has AddrEndpoint.
	Endpoint model.EndpointID
	Gone     bool
}

// AddrFlags are bits of an address entry besides its class; values as in bpf (ADDR_*).
type AddrFlags uint32
