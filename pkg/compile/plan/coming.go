package plan

import (
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/compile/classes"
)

// A set of a selector or a Service may have a hundred thousand members, and each of them is a write to the kernel when it joins a set that
// tables know, or leaves it. So those of a set that comes wait until a program refers to it, and join when the set is opened, some with each
// plan. Those of a set that has gone leave in the same way when no program refers to it any more. Either moves addresses between classes that no
// table tells apart.

// mostAtOnce is how many members a set may have that has all of them at once.
const mostAtOnce = 1024

// perUnit is how many members join or leave for one unit of MaxOpen. The entry of a single address costs much less than that of a prefix.
const perUnit = 4

// unitsOf is what it costs that so many members join or leave.
func unitsOf(members int) int { return (members + perUnit - 1) / perUnit }

// comings are the uses of sets that have coming members, by number.
type comings map[uint32]*setUse

// await makes these the members of a set that have not joined yet.
func (c comings) await(num uint32, u *setUse, members []netip.Prefix) {
	if !slices.IsSortedFunc(members, netip.Prefix.Compare) { // those of a SetChange ascend mostly
		members = slices.SortedFunc(slices.Values(members), netip.Prefix.Compare)
	}
	u.coming, u.thinned = members, classes.Place{}
	u.wide = slices.ContainsFunc(members, func(p netip.Prefix) bool { return !p.IsSingleIP() })
	if len(members) > 0 {
		c[num] = u
	} else {
		delete(c, num)
	}
}

// outrun has coming members join now that are to leave, so that it is known for whom that makes a difference.
func (s *setNumbers) outrun(num uint32, u *setUse, leaving []netip.Prefix) {
	var early []netip.Prefix
	for _, p := range leaving {
		if isAmong(u.coming, p) {
			early = append(early, p)
		}
	}
	if len(early) == 0 {
		return
	}
	slices.SortFunc(early, netip.Prefix.Compare)
	s.classes.JoinAll(early, num)
	s.coming.await(num, u, slices.DeleteFunc(slices.Clone(u.coming), func(p netip.Prefix) bool { return isAmong(early, p) }))
}

// isAmong reports whether an ascending list has a prefix.
func isAmong(list []netip.Prefix, p netip.Prefix) bool {
	_, found := slices.BinarySearchFunc(list, p, netip.Prefix.Compare)
	return found
}

// welcome has coming members of a set join, at a cost of at most most. It returns the rest of most, and the part to apply.
func (s *setNumbers) welcome(num uint32, u *setUse, most int) (left int, do part) {
	n := min(len(u.coming), max(most, 1)*perUnit)
	do = part{set: num, prefixes: u.coming[:n], many: true}
	if u.coming = u.coming[n:]; len(u.coming) == 0 {
		delete(s.coming, num)
	}
	return most - unitsOf(n), do
}

// thin has members of a set leave that is gone, at a cost of at most most, unless they are few. It returns the rest of most, and whether the
// set has few by now.
func (s *setNumbers) thin(num uint32, u *setUse, most int) (left int, done bool) {
	size := s.classes.Size(num)
	if size <= s.atOnce || most > 1<<30 {
		return most, true
	}
	n := min(size, max(most, 1)*perUnit)
	u.thinned = s.classes.Thin(num, u.thinned, n)
	return most - unitsOf(n), s.classes.Size(num) <= s.atOnce
}

// isComing reports whether an address is in a coming member.
func (u *setUse) isComing(a netip.Addr) bool {
	for bits := a.BitLen(); bits >= 0 && (u.wide || bits == a.BitLen()); bits-- {
		if around, err := a.Prefix(bits); err == nil && isAmong(u.coming, around) {
			return true
		}
	}
	return false
}

// of returns the numbers of the sets that an address is a member of, ascending, of those that have not been opened, too.
func (s *setNumbers) of(a netip.Addr) []uint32 {
	joined := s.classes.Members(a)
	if len(s.coming) == 0 {
		return joined
	}
	var all []uint32
	for num, u := range s.coming {
		if u.isComing(a) {
			all = append(all, num)
		}
	}
	if len(all) == 0 {
		return joined
	}
	all = append(all, joined...)
	slices.Sort(all)
	return slices.Compact(all)
}
