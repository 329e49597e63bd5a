package classes

import (
	"net/netip"
	"slices"
)

// Show makes entries tell members of the sets apart.
func (ms *members) Show(sets ...uint32) {
	var old []uint32
	for _, n := range sets {
		s := ms.set(n)
		if !s.shown && s.members > 0 {
			old = append(old, n)
		}
		s.shown = true
	}
	clear(ms.parts)
	ms.scan(old, false)
}

// Hide ends that, for sets nothing in the kernel refers to any more.
func (ms *members) Hide(sets ...uint32) {
	clear(ms.parts)
	ms.scan(sets, false)
	for _, n := range sets {
		if s := ms.set(n); s.members > 0 {
			s.shown = false
		} else {
			delete(ms.sets, n)
		}
	}
}

// Join makes a prefix a member of a set that no local side is judged by.
func (ms *members) Join(p netip.Prefix, set uint32) {
	some, all := ms.local, ms.wide
	ms.Add(p, set)
	ms.local, ms.wide = some, all
}

// JoinAll is Join for many prefixes.
func (ms *members) JoinAll(prefixes []netip.Prefix, set uint32) {
	some, all := ms.local, ms.wide
	ms.Change(prefixes, []uint32{set}, nil)
	ms.local, ms.wide = some, all
}

// Leave takes a prefix out of a set that no local side is judged by.
func (ms *members) Leave(p netip.Prefix, set uint32) {
	some, all := ms.local, ms.wide
	ms.Remove(p, set)
	ms.local, ms.wide = some, all
}

// Empty removes all members of the sets.
func (ms *members) Empty(sets ...uint32) {
	ms.scan(sets, true)
	for _, n := range sets {
		if s := ms.set(n); s.shown {
			s.members = 0
		} else {
			delete(ms.sets, n)
		}
	}
}

// Size is how many members a set has.
func (ms *members) Size(set uint32) int {
	if s := ms.sets[set]; s != nil {
		return s.members
	}
	return 0
}

// Place is a place among the prefixes, the first one at zero.
type Place struct {
	family int
	node   int
}

// Thin takes so many of its members, or all, out of a set that has gone, those after a place. It returns the place that it has got to. Meanwhile
// the set has got no members.
func (ms *members) Thin(set uint32, from Place, most int) Place {
	left := map[listID]listID{} // a list -> without the set
	for ; from.family < len(ms.trees); from = (Place{family: from.family + 1}) {
		t := ms.trees[from.family]
		for ; from.node < len(t.nodes); from.node++ {
			n := &t.nodes[from.node]
			if n.own == 0 {
				continue
			}
			to, known := left[n.own]
			if !known {
				to = ms.lists.minus(n.own, []uint32{set})
				left[n.own] = to
			}
			if to == n.own {
				continue
			}
			if most == 0 {
				return from
			}
			most--
			n.own = to
			ms.set(set).members--
			t.dirty(uint32(from.node))
			ms.hollow[from.family] = append(ms.hollow[from.family], uint32(from.node))
		}
	}
	return from
}

// scan marks the members of the sets as dirty, and takes them out if forget. It looks at every node, once for all of
// the sets; without members it does nothing.
func (ms *members) scan(sets []uint32, forget bool) {
	sets = slices.DeleteFunc(slices.Clone(sets), func(n uint32) bool { return ms.set(n).members == 0 })
	if len(sets) == 0 {
		return
	}
	slices.Sort(sets)
	left := map[listID]listID{} // a list -> without the sets
	var own, to listID          // the last ones
	for f, t := range ms.trees {
		for i := range t.nodes {
			n := &t.nodes[i]
			if n.own == 0 {
				continue
			}
			if n.own != own { // neighbours are mostly in the same sets
				known, ok := left[n.own]
				if !ok {
					known = ms.lists.minus(n.own, sets)
					left[n.own] = known
				}
				own, to = n.own, known
			}
			if to == n.own {
				continue
			}
			t.dirty(uint32(i))
			if forget {
				n.own = to
				ms.hollow[f] = append(ms.hollow[f], uint32(i))
			}
		}
	}
}

// Unmark removes marks from every prefix.
func (ms *members) Unmark(m Marks) {
	for f, t := range ms.trees {
		for i := range t.nodes {
			if n := &t.nodes[i]; n.marks&m != 0 {
				n.marks &^= m
				t.dirty(uint32(i))
				ms.hollow[f] = append(ms.hollow[f], uint32(i))
			}
		}
	}
}
