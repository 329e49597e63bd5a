package plan

import "net/netip"

// A prefix that becomes a member of a set, or ceases to be one, gives all entries inside it other classes: thousands, if it is
// 0.0.0.0/0. So that no plan has to write them all, each of them is a member itself while the prefix comes or goes:
//
//	comes: the entries join, some with each plan; the prefix joins, which moves no entry but its own; the entries leave, to no effect
//	goes:  the entries join, to no effect; the prefix leaves, which moves no entry but its own; the entries leave, some with each plan
//
// Entries that come meanwhile move with the prefix.

// mostInside is how many entries may be inside a prefix that comes or goes at once.
const mostInside = 16

// noEffect is how many entries that join or leave to no effect cost as much as one that moves.
const noEffect = 8

// cover is a prefix with many entries inside it that comes or goes.
type cover struct {
	prefix netip.Prefix
	inner  []netip.Prefix
	joined int  // so many of those are members
	in     bool // the prefix is a member
}

// part is prefixes that join a set, or leave it.
type part struct {
	set      uint32
	prefixes []netip.Prefix
	leave    bool
	many     bool // they join together: they are not of a list
}

// isOpen reports whether all prefixes of a set are members, and nothing else.
func (u *setUse) isOpen() bool {
	return u.joined == len(u.nets) && u.cover == nil && len(u.coming) == 0
}

// isEmpty reports whether no prefix of it is.
func (u *setUse) isEmpty() bool { return u.joined == 0 && u.cover == nil }

// costs returns the cost of opening the rest of a set. It stops counting above most.
func (s *setNumbers) costs(u *setUse, most int) int {
	sum := unitsOf(len(u.coming))
	if !u.named {
		sum += memberCost
	}
	if u.cover != nil {
		sum += len(u.cover.inner) * memberCost
	}
	for _, p := range u.nets[u.joined:] {
		if sum > most {
			break
		}
		sum += memberCost * (1 + len(s.classes.Inside(p, (most-sum)/memberCost+1)))
	}
	return sum
}

// coverOf is what a prefix needs to come or go in parts; nil: it may do so at once, which costs so much.
func (s *setNumbers) coverOf(p netip.Prefix, in, whole bool) (c *cover, cost int) {
	if whole || p.IsSingleIP() {
		return nil, memberCost
	}
	few := s.classes.Inside(p, s.inner+1)
	if len(few) <= s.inner {
		return nil, memberCost * (1 + len(few))
	}
	return &cover{prefix: p, inner: s.classes.Inside(p, 1<<31), in: in}, 0
}

// open continues to open a set, at a cost of at most most. It returns the rest of most and the parts to apply. whole:
// everything at once.
func (s *setNumbers) open(num uint32, u *setUse, most int, whole bool) (left int, do []part) {
	for most > 0 && !u.isOpen() {
		c := u.cover
		switch {
		case len(u.coming) > 0:
			var members part
			most, members = s.welcome(num, u, most)
			do = append(do, members)
		case c == nil:
			var cost int
			if u.cover, cost = s.coverOf(u.nets[u.joined], false, whole); u.cover == nil {
				do = append(do, part{set: num, prefixes: u.nets[u.joined : u.joined+1]})
				u.joined++
			}
			most -= cost
		case !c.in && c.joined < len(c.inner):
			some := c.join(most/memberCost + 1)
			do = append(do, part{set: num, prefixes: some})
			most -= len(some) * memberCost
		case !c.in:
			do = append(do, part{set: num, prefixes: u.nets[u.joined : u.joined+1]})
			c.in = true
			u.joined++
			most -= memberCost
		case c.joined > 0:
			some := c.leave(most * noEffect / memberCost)
			do = append(do, part{set: num, prefixes: some, leave: true})
			most -= 1 + len(some)*memberCost/noEffect
		default:
			u.cover = nil
		}
	}
	return most, do
}

// empty continues to empty a set, at a cost of at most most. It returns the rest of most.
func (s *setNumbers) empty(num uint32, u *setUse, most int) (left int) {
	for most > 0 && !u.isEmpty() {
		c := u.cover
		switch {
		case c == nil:
			var cost int
			if u.cover, cost = s.coverOf(u.nets[u.joined-1], true, most > 1<<30); u.cover == nil {
				u.joined--
				s.apply(part{set: num, prefixes: u.nets[u.joined : u.joined+1], leave: true})
			}
			most -= cost
		case c.in && c.joined < len(c.inner):
			some := c.join(most * noEffect / memberCost)
			s.apply(part{set: num, prefixes: some})
			most -= 1 + len(some)*memberCost/noEffect
		case c.in:
			u.joined--
			s.apply(part{set: num, prefixes: u.nets[u.joined : u.joined+1], leave: true})
			c.in = false
			most -= memberCost
		case c.joined > 0:
			some := c.leave(most/memberCost + 1)
			s.apply(part{set: num, prefixes: some, leave: true})
			most -= len(some) * memberCost
		default:
			u.cover = nil
		}
	}
	return most
}

// apply carries out one part that open or empty decided on.
func (s *setNumbers) apply(p part) {
	if p.many {
		s.classes.JoinAll(p.prefixes, p.set)
		return
	}
	for _, prefix := range p.prefixes {
		if p.leave {
			s.classes.Leave(prefix, p.set)
		} else {
			s.classes.Join(prefix, p.set)
		}
	}
}

// join makes up to so many entries more members.
func (c *cover) join(most int) []netip.Prefix {
	n := min(max(most, 1), len(c.inner)-c.joined)
	c.joined += n
	return c.inner[c.joined-n : c.joined]
}

// leave ends that for up to so many.
func (c *cover) leave(most int) []netip.Prefix {
	n := min(max(most, 1), c.joined)
	c.joined -= n
	return c.inner[c.joined : c.joined+n]
}
