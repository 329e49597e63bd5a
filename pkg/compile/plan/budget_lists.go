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
// classes together the product of both. The prefixes of one list do not overlap. Not ok: spend wants it to end.
func overlapOf(lists map[model.SetID][]netip.Prefix, spend spender) (most, combinations int, ok bool) {
	n := 0
	for _, nets := range lists {
		n += len(nets)
	}
	all, seed, counted := make([]listed, 0, n), maphash.MakeSeed(), 0
	for id, nets := range lists {
		digest := maphash.String(seed, string(id))
		for _, net := range nets {
			all = append(all, listed{net, digest})
		}
		if len(all)-counted >= sortedAtOnce {
			if !spend(len(all) - counted) {
				return 0, 0, false
			}
			counted = len(all)
		}
	}
	if all, ok = sortInParts(all, compareListed, spend); !ok {
		return 0, 0, false
	}
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
		if (i+1)%sortedAtOnce == 0 && !spend(sortedAtOnce) {
			return 0, 0, false
		}
	}
	return most, len(found), true
}

func compareListed(a, b listed) int {
	return cmp.Or(a.net.Addr().Compare(b.net.Addr()), cmp.Compare(a.net.Bits(), b.net.Bits()))
}

// spender gets the number of prefixes or numbers that were worked with, and makes a break if it is time for one. False: what remains is
// not wanted any more.
type spender func(items int) bool

// sortedAtOnce is how many items are worked with between two chances of a break.
const sortedAtOnce = 512

// sortInParts sorts a list, stably, with breaks. It returns the list in order, which may be another; not ok: spend wants it to end.
func sortInParts[E any](list []E, compare func(a, b E) int, spend spender) (sorted []E, ok bool) {
	for part := range slices.Chunk(list, sortedAtOnce) {
		slices.SortStableFunc(part, compare)
		if len(list) > sortedAtOnce && !spend(2*len(part)) {
			return nil, false
		}
	}
	if len(list) <= sortedAtOnce {
		return list, true
	}
	other := make([]E, 0, len(list))
	for size := sortedAtOnce; size < len(list); size *= 2 {
		other = other[:0]
		for pair := range slices.Chunk(list, 2*size) {
			a, b := pair[:min(size, len(pair))], pair[min(size, len(pair)):]
			for len(a)+len(b) > 0 {
				if len(b) == 0 || len(a) > 0 && compare(a[0], b[0]) <= 0 {
					other, a = append(other, a[0]), a[1:]
				} else {
					other, b = append(other, b[0]), b[1:]
				}
				if len(other)%sortedAtOnce == 0 && !spend(sortedAtOnce) {
					return nil, false
				}
			}
		}
		list, other = other, list
	}
	return list, true
}
