// Package labelindex knows which selectors match which items, by the items' labels and those they inherit from parents
// (profiles). Both sides change, and the cost of a change depends on the items and selectors that it concerns: a selector
// is tried against items that have a label it needs, an item against selectors that need a label it has.
//
// The index gives no meaning to items and selections. Its user keeps a V with each item and a U with each selection. It
// does no I/O and belongs to one goroutine.
package labelindex

import (
	"iter"
	"slices"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// Index matches selections with groups of items. Its methods leave it consistent. They return the matches that they
// changed, and the caller carries on from there. Its parts find what a change concerns; the index itself keeps the matches.
type Index[V, U any] struct {
	interner   *interner[V, U]
	groups     *groupTable[V, U]
	parents    *inheritance[V, U]
	selections *selectionIndex[V, U]
	round      uint64 // of rematch
	tried      int    // see Tried
}

// New returns an empty index. With inherit, labels of parents without items are not kept but asked of it when an item
// comes that has the parent; it returns nil for a parent that does not exist. With nil they are kept.
func New[V, U any](inherit func(parent string) map[string]string) *Index[V, U] {
	labels := newInterner[V, U]()
	return &Index[V, U]{
		interner:   labels,
		groups:     newGroupTable[V, U](),
		parents:    newInheritance(labels, inherit),
		selections: newSelectionIndex(labels),
	}
}

// Shrink frees the memory of items that are gone. It takes time only when that is worth it.
func (x *Index[V, U]) Shrink() { x.groups.shrink() }

// Len is the number of groups, parents, names of labels and selections that the index has: 0 if nothing is left in it.
func (x *Index[V, U]) Len() int {
	return len(x.groups.groups) + x.parents.parents.Len() + len(x.interner.names) + x.selections.byText.Len()
}

// Join puts the item into the group with that identity. If the item is the first of it, which Join reports, what matches
// the group is known when it returns.
func (x *Index[V, U]) Join(it *Item[V, U], id Identity) (first bool) {
	id = id.normal()
	g, hash := x.groups.find(id)
	if g == nil {
		g = x.newGroup(id, hash)
	}
	return g.put(it)
}

// Leave takes the item out of its group. A group that was left by its last item is out of the index, but still knows
// its matches.
func (x *Index[V, U]) Leave(it *Item[V, U]) {
	if it.group.remove(it) {
		x.dropGroup(it.group)
	}
}

// Groups yields every group.
func (x *Index[V, U]) Groups() iter.Seq[*Group[V, U]] { return x.groups.all() }

func (x *Index[V, U]) newGroup(id Identity, hash uint64) *Group[V, U] {
	return x.addGroup(x.interner.intern(id.Labels), id.Parents, id.Ports, hash) // the group keeps no more of the identity
}

func (x *Index[V, U]) addGroup(labels []*label[V, U], parents []string, ports []model.NamedPort, hash uint64) *Group[V, U] {
	g := &Group[V, U]{labels: labels}
	if g.alone.who = g; len(ports) > 0 {
		g.more().setPorts(ports)
	}
	x.groups.add(g, hash)
	for _, l := range g.labels {
		l.addGroup(g)
	}
	x.parents.join(g, parents)
	x.rematch(g)
	return g
}

func (x *Index[V, U]) dropGroup(g *Group[V, U]) {
	x.groups.remove(g)
	for _, l := range g.labels {
		l.dropGroup(g)
		x.interner.dropLabel(l)
	}
	x.parents.leave(g)
	for _, m := range g.matches {
		m.selection.forget(m.at)
	}
}

// SetParent gives a parent its labels, nil if it is gone. It calls changed with the matches that started or stopped, group by group;
// selections may be removed then. Groups that are stale since Supersede stay so.
func (x *Index[V, U]) SetParent(name string, labels map[string]string, changed func([]Match[V, U])) {
	for g := range x.parents.set(name, labels) {
		if all := x.rematch(g); len(all) > 0 {
			changed(all)
		}
	}
}

// ParentLabels returns the labels of a parent; nil if it has none. The map is the caller's.
func (x *Index[V, U]) ParentLabels(name string) map[string]string { return x.parents.labels(name) }

// IsParent reports whether any item has the parent.
func (x *Index[V, U]) IsParent(name string) bool { return x.parents.count(name) > 0 }

// Children yields the groups that have the parent.
func (x *Index[V, U]) Children(name string) iter.Seq[*Group[V, U]] { return x.parents.children(name) }

// Same returns a selector of the index with the text of sel, or sel if there is none: so that equal selectors share memory.
func (x *Index[V, U]) Same(sel *selector.Selector) (same *selector.Selector, found bool) {
	if s := x.selections.byText.Get(sel.String()); s != nil {
		return s.selector, true
	}
	return sel, false
}

// Candidates is about how many groups a selector is matched against when it is added. What selections there are already makes no difference.
func (x *Index[V, U]) Candidates(sel *selector.Selector) int {
	if name, must, _, ok := x.selections.cheapest(sel); ok {
		return x.selections.groupCount(name, must)
	}
	return len(x.groups.groups)
}

// Matching yields the groups that a selector matches, for which the index need not have a selection, and gets none.
func (x *Index[V, U]) Matching(sel *selector.Selector) iter.Seq[*Group[V, U]] {
	if s := x.selections.byText.Get(sel.String()); s != nil {
		return s.Groups()
	}
	candidates := x.groups.all()
	if name, must, _, ok := x.selections.cheapest(sel); ok {
		of := x.interner.names[name]
		if of == nil {
			return func(func(*Group[V, U]) bool) {}
		}
		candidates = x.selections.groups(of, must)
	}
	return func(yield func(*Group[V, U]) bool) {
		seen := map[*Group[V, U]]struct{}{}
		for g := range candidates {
			if _, again := seen[g]; again || !sel.Matches(g) {
				continue
			}
			if seen[g] = struct{}{}; !yield(g) {
				return
			}
		}
	}
}

// Add returns the selection of the selector, matched against every group. Equal selectors have one selection.
func (x *Index[V, U]) Add(sel *selector.Selector) *Selection[V, U] {
	if s := x.selections.byText.Get(sel.String()); s != nil {
		return s
	}
	s, must := x.selections.add(sel)
	candidates := x.groups.all()
	if s.filed != nil {
		candidates = x.selections.groups(s.filed, must)
	}
	for g := range candidates {
		// A group that has come up before was matched last.
		if again := len(g.matches) > 0 && g.matches[len(g.matches)-1].selection == s; !again && sel.Matches(g) {
			link(s, g)
		}
	}
	s.groups = slices.Clip(s.groups)
	return s
}

// Remove takes the selection out of the index.
func (x *Index[V, U]) Remove(s *Selection[V, U]) {
	x.selections.remove(s)
	for i := len(s.groups) - 1; i >= 0; i-- {
		s.groups[i].group.unlink(s.groups[i].at)
	}
}

// rematch brings the group's matches up to date and returns those that started or stopped.
func (x *Index[V, U]) rematch(g *Group[V, U]) []Match[V, U] {
	// Selections that matched have the first of two rounds; those that match now have the second.
	x.round += 2
	for _, m := range g.matches {
		m.selection.round = x.round - 1
	}
	known := len(g.matches)
	var changed []Match[V, U]
	for s := range x.selections.candidates(g) {
		if s.round == x.round {
			continue
		}
		if x.tried += 1 + len(s.selector.String())/selector.MaxLength; !s.selector.Matches(g) {
			continue
		}
		if s.round != x.round-1 {
			link(s, g)
			changed = append(changed, Match[V, U]{s, g, true})
		}
		s.round = x.round
	}
	for i := known - 1; i >= 0; i-- {
		if s := g.matches[i].selection; s.round != x.round {
			g.unlink(i)
			changed = append(changed, Match[V, U]{s, g, false})
		}
	}
	return changed
}
