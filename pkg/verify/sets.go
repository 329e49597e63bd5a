package verify

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// NumberedSets returns the sets of these numbers, in the order of their numbers. ofPolicies yields the members of sets that the objects
// do not have: lists of CIDRs, from the policies in force that refer to them. A set may come several times, with the same members.
func NumberedSets(numbers map[uint32]model.SetID, ofPolicies iter.Seq[map[model.SetID][]netip.Prefix]) []Set {
	members := map[model.SetID][]netip.Prefix{}
	for some := range ofPolicies {
		maps.Copy(members, some)
	}
	list := make([]Set, 0, len(numbers))
	for _, n := range slices.Sorted(maps.Keys(numbers)) {
		list = append(list, Set{Number: n, ID: numbers[n], Members: members[numbers[n]]})
	}
	return list
}
