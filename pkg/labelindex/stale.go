package labelindex

import (
	"iter"
	"slices"
)

// A parent with very many items may get other labels for one item after the other. Meanwhile there are two of it: items that come, and those
// that are renewed, inherit its present labels, and the others those of before. Their group is stale. An item is in one group at any moment,
// and what it is matched by is what its group is matched by, so no selector sees it between the two.

// Supersede gives a parent its labels, nil if it is gone, for items that join from now on. It yields the groups that have become stale: Renew has
// their items inherit the new labels. There may be others, from earlier changes.
func (x *Index[V, U]) Supersede(name string, labels map[string]string) iter.Seq[*Group[V, U]] {
	return x.parents.supersede(name, labels)
}

// IsStale reports whether the group inherits labels that a parent does not have any more.
func (g *Group[V, U]) IsStale() bool {
	for _, p := range g.parents() {
		if p.stale {
			return true
		}
	}
	return false
}

// Renew has an item of a stale group inherit the present labels of all of its parents. It returns the group that it was in, and whether it is the
// first in the one that it is in now.
func (x *Index[V, U]) Renew(it *Item[V, U]) (was *Group[V, U], first bool) {
	was = it.group
	now, hash := x.groups.findLike(was)
	if now == nil {
		now = x.addGroup(was.labels, slices.Collect(was.Parents()), was.Ports(), hash)
	}
	// A list of groups may leave out those without items when one of them goes.
	last := was.remove(it)
	if first = now.put(it); last {
		x.dropGroup(was)
	}
	return was, first
}

// Between are the matches that an item loses and gets that was in one group and is in another one now.
func (x *Index[V, U]) Between(was, now *Group[V, U]) (changed []Match[V, U]) {
	x.round += 2 // as in rematch: those that match both have the first of two rounds
	for _, m := range now.matches {
		m.selection.round = x.round
	}
	for _, m := range was.matches {
		if m.selection.round == x.round {
			m.selection.round = x.round - 1
		} else {
			changed = append(changed, Match[V, U]{m.selection, now, false})
		}
	}
	for _, m := range now.matches {
		if m.selection.round == x.round {
			changed = append(changed, Match[V, U]{m.selection, now, true})
		}
	}
	return changed
}

// Tried is how often selectors were tried with groups that came or got other labels. One that is n times as long as a selector of Calico may be
// counts n times more.
func (x *Index[V, U]) Tried() int { return x.tried }

// isLike reports whether both have the same identity, which a parent is part of.
func (g *Group[V, U]) isLike(other *Group[V, U]) bool {
	if !slices.Equal(g.labels, other.labels) || !slices.Equal(g.Ports(), other.Ports()) || g.parent == nil || other.parent == nil {
		return false
	}
	var mine, others []*parent[V, U]
	if g.rest != nil {
		mine = g.rest.parents
	}
	if other.rest != nil {
		others = other.rest.parents
	}
	return g.parent.name == other.parent.name &&
		slices.EqualFunc(mine, others, func(p, q *parent[V, U]) bool { return p.name == q.name })
}

// supersede gives a parent its labels for groups that come. It yields those that it has.
func (h *inheritance[V, U]) supersede(name string, labels map[string]string) iter.Seq[*Group[V, U]] {
	was := h.parents.Get(name)
	if was == nil || was.groups.len() == 0 || equalLabels(was.labels, labels) {
		for range h.set(name, labels) { // no group has it
		}
		return func(func(*Group[V, U]) bool) {}
	}
	now := &parent[V, U]{name: name, before: was}
	now.alone.who, was.stale = now, true
	h.parents.Put(now)
	h.relabel(now, labels)
	return was.groups.live()
}
