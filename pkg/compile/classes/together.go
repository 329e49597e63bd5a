package classes

import (
	"net/netip"
	"slices"
)

// Change makes prefixes members of some sets and takes them out of others; the numbers ascend, and none is in both lists. It is
// as quick for many sets as for one: an author of a Service may change very many that have the same members.
func (ms *members) Change(prefixes []netip.Prefix, join, leave []uint32) {
	steps := map[listID]*step{}
	var s *step // of the last one: neighbours are mostly in the same sets
	for _, p := range prefixes {
		f, i, ok := ms.node(p, len(join) > 0)
		if !ok {
			continue
		}
		n := &ms.trees[f].nodes[i]
		if s == nil || s.from != n.own {
			if s = steps[n.own]; s == nil {
				s = ms.step(n.own, join, leave)
				steps[n.own] = s
			}
		}
		if n.own == s.to {
			continue
		}
		n.own = s.to
		s.nodes++
		if len(s.left) > 0 {
			ms.hollow[f] = append(ms.hollow[f], i)
		}
		ms.changed(f, i, s.shown)
	}
	for _, s := range steps {
		for _, set := range s.joined {
			ms.set(set).members += s.nodes
		}
		for _, set := range s.left {
			ms.set(set).members -= s.nodes
		}
	}
}

// step is the same change for all nodes with the same sets.
type step struct {
	from, to     listID
	joined, left []uint32 // sets that they were not, and were in
	shown        bool     // one of those is
	nodes        int
}

func (ms *members) step(own listID, join, leave []uint32) *step {
	s := &step{from: own}
	for _, set := range join {
		if !ms.lists.has(own, set) {
			s.joined = append(s.joined, set)
		}
	}
	for _, set := range leave {
		if ms.lists.has(own, set) {
			s.left = append(s.left, set)
		}
	}
	s.to = ms.lists.minus(own, s.left)
	if len(s.joined) > 0 {
		s.to = ms.lists.union(s.to, ms.lists.intern(s.joined))
	}
	s.shown = slices.ContainsFunc(s.joined, ms.isShown) || slices.ContainsFunc(s.left, ms.isShown)
	return s
}

func (ms *members) isShown(set uint32) bool { return ms.set(set).shown }
