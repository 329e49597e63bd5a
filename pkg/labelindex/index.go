// Package labelindex knows which selectors match which items, by the items' labels and those they inherit from parents
// (profiles). Both sides change, and a change costs what it concerns: a selector is tried against items that have a label
// it needs, an item against selectors that need a label it has.
//
// The index gives no meaning to items and selections. Its user keeps a V with each item and a U with each selection. It
// does no I/O and belongs to one goroutine.
package labelindex

import (
	"hash/maphash"
	"iter"

	"github.com/margay-project/margay/pkg/mapsize"
	"github.com/margay-project/margay/pkg/selector"
)

// Index matches selections with groups of items. Its methods leave it consistent. They return the matches that they
// changed, and the caller carries on from there.
type Index[V, U any] struct {
	seed    maphash.Seed
	groups  map[uint64]*Group[V, U] // by hash of their identity
	parents map[string]*parent[V, U]
	inherit func(parent string) map[string]string // nil: parents keep their labels here

	labels     map[string]*labelName[V, U]
	selections selectionIndex[V, U]
	round      uint64 // of rematch
	most       int    // groups, see mapsize
}

// New returns an empty index. With inherit, labels of parents without items are not kept but asked of it when an item
// comes that has the parent; it returns nil for a parent that does not exist. With nil they are kept.
func New[V, U any](inherit func(parent string) map[string]string) *Index[V, U] {
	return &Index[V, U]{
		seed:       maphash.MakeSeed(),
		groups:     map[uint64]*Group[V, U]{},
		parents:    map[string]*parent[V, U]{},
		inherit:    inherit,
		labels:     map[string]*labelName[V, U]{},
		selections: newSelectionIndex[V, U](),
	}
}

// Shrink gives back memory that items had that are gone. It takes time only when that is worth it.
func (x *Index[V, U]) Shrink() { mapsize.Shrink(&x.groups, &x.most) }

// Len is the number of groups, parents, names of labels and selections that the index has: 0 if nothing is left in it.
func (x *Index[V, U]) Len() int {
	return len(x.groups) + len(x.parents) + len(x.labels) + len(x.selections.byText)
}

// Join puts the item into the group with that identity. If the item is the first of it, which Join reports, what matches
// the group is known when it returns.
func (x *Index[V, U]) Join(it *Item[V, U], id Identity) (first bool) {
	hash := x.hash(id)
	g := x.groups[hash]
	for g != nil && !g.Has(id) {
		g = g.next
	}
	if g == nil {
		g = x.newGroup(id, hash)
	}
	it.group, it.next = g, g.items
	if it.next != nil {
		it.next.prev = it
	}
	g.items = it
	return it.next == nil
}

// Leave takes the item out of its group. A group that was left by its last item is out of the index, but still knows
// its matches.
func (x *Index[V, U]) Leave(it *Item[V, U]) {
	g := it.group
	if it.next != nil {
		it.next.prev = it.prev
	}
	if it.prev != nil {
		it.prev.next = it.next
	} else {
		g.items = it.next
	}
	it.next, it.prev = nil, nil
	if g.items == nil {
		x.dropGroup(g)
	}
}

// Groups yields every group.
func (x *Index[V, U]) Groups() iter.Seq[*Group[V, U]] {
	return func(yield func(*Group[V, U]) bool) {
		for _, g := range x.groups {
			for ; g != nil; g = g.next {
				if !yield(g) {
					return
				}
			}
		}
	}
}

func (x *Index[V, U]) newGroup(id Identity, hash uint64) *Group[V, U] {
	g := &Group[V, U]{ports: id.Ports, next: x.groups[hash], labels: x.intern(id.Labels)}
	x.groups[hash] = g
	for _, l := range g.labels {
		l.groups.add(g)
	}
	if len(id.Parents) > 0 {
		g.parents = make([]*parent[V, U], 0, len(id.Parents))
	}
	for _, name := range id.Parents {
		p := x.parent(name)
		p.groups.add(g)
		g.parents = append(g.parents, p)
	}
	x.rematch(g)
	return g
}

func (x *Index[V, U]) dropGroup(g *Group[V, U]) {
	x.unchain(g)
	for _, l := range g.labels {
		l.groups.left()
		x.dropLabelIfUnused(l)
	}
	for _, p := range g.parents {
		p.groups.left()
		x.dropParentIfUnused(p)
	}
	for _, m := range g.matches {
		m.selection.forget(m.at)
	}
}

// unchain takes the group out of those of its hash.
func (x *Index[V, U]) unchain(g *Group[V, U]) {
	hash := x.hashGroup(g)
	if x.groups[hash] != g {
		before := x.groups[hash]
		for before.next != g {
			before = before.next
		}
		before.next = g.next
		return
	}
	if x.groups[hash] = g.next; g.next == nil {
		delete(x.groups, hash)
	}
}

// Same returns a selector of the index with the text of sel, or sel if there is none: so that equal selectors share memory.
func (x *Index[V, U]) Same(sel *selector.Selector) (same *selector.Selector, found bool) {
	if s := x.selections.byText[sel.String()]; s != nil {
		return s.selector, true
	}
	return sel, false
}
