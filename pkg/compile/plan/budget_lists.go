package plan

import (
	"cmp"
	"hash/maphash"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// listed is a prefix of a CIDR list.
type listed struct {
	net  netip.Prefix
	list uint64 // a digest of the list's name
}

// overlapOf is how many of the lists one address is in, at most, and how many combinations of lists addresses are in. Every
// address of the node inside of those prefixes is in a class of that many sets, whosever it is: lists that overlap cost all
// classes together the product of both. The prefixes of one list do not overlap.
func overlapOf(lists map[model.SetID][]netip.Prefix) (most, combinations int) {
	n := 0
	for _, nets := range lists {
		n += len(nets)
	}
	all, seed := make([]listed, 0, n), maphash.MakeSeed()
	for id, nets := range lists {
		digest := maphash.String(seed, string(id))
		for _, net := range nets {
			all = append(all, listed{net, digest})
		}
	}
	slices.SortFunc(all, func(a, b listed) int {
		return cmp.Or(a.net.Addr().Compare(b.net.Addr()), cmp.Compare(a.net.Bits(), b.net.Bits()))
	})
	found := map[uint64]struct{}{}
	var around []listed // each inside the one before, or the same prefix; list is the sum of this one's and theirs
	for i, p := range all {
		for len(around) > 0 && !around[len(around)-1].net.Contains(p.net.Addr()) {
			around = around[:len(around)-1]
		}
		if len(around) > 0 {
			p.list += around[len(around)-1].list
		}
		around = append(around, p)
		most = max(most, len(around))
		if i+1 == len(all) || all[i+1].net != p.net { // else the address is in more lists
			found[p.list] = struct{}{}
		}
	}
	return most, len(found)
}
