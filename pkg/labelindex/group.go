package labelindex

import (
	"iter"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// Identity is all of an item that selectors and named ports can see. Maps and lists may be shared and must not be changed.
type Identity struct {
	Labels  map[string]string
	Parents []string // whose labels it inherits; the first that has a label gives it
	Ports   []model.NamedPort
}

// normal returns the identity with each parent once: the labels of the first one count.
func (id Identity) normal() Identity {
	id.Parents = distinct(id.Parents)
	return id
}

// distinct returns names without those that are in front of themselves already.
func distinct(names []string) []string {
	if len(names) < 2 || len(names) == 2 && names[0] != names[1] { // as pods have
		return names
	}
	seen := make(map[string]bool, len(names))
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		again := seen[name]
		seen[name] = true
		return again
	})
}

// Item is one thing with labels. It is in at most one index, and belongs to the index from Join to Leave. V is what the
// user of the index keeps with it.
type Item[V, U any] struct {
	group      *Group[V, U]
	next, prev *Item[V, U] // in the group
	Value      V
}

// Group returns the group of the item; after Leave, the one that it was in.
func (it *Item[V, U]) Group() *Group[V, U] { return it.group }

// IsIn reports whether the item is in an index: it has joined, and not left.
func (it *Item[V, U]) IsIn() bool { return it.group != nil && (it.prev != nil || it.group.items == it) }

// Group is all items of an index with one identity, but for those that are stale (Supersede). Selectors are matched against groups, so the pods of a Deployment
// cost one match and share one copy of their labels.
type Group[V, U any] struct {
	labels  []*label[V, U]   // its own, by name
	parent  *parent[V, U]    // the first; nil: none
	rest    *groupRest[V, U] // nil: nothing of it
	items   *Item[V, U]      // the first; nil: the group is gone
	matches []matched[V, U]
	next    *Group[V, U] // of the same hash
	alone   users[V, U]  // the group
}

// groupRest is what few groups have of an identity. There may be a group for each item.
type groupRest[V, U any] struct {
	parents []*parent[V, U]   // after the first, in order
	ports   []model.NamedPort // shared with the item that had them first
	byName  []model.NamedPort // the same, sorted, if they are more than fewPorts
}

// more returns the group's rest, which it makes if there is none.
func (g *Group[V, U]) more() *groupRest[V, U] {
	if g.rest == nil {
		g.rest = &groupRest[V, U]{}
	}
	return g.rest
}

// parents yields the parents by their place in the order.
func (g *Group[V, U]) parents() iter.Seq2[int, *parent[V, U]] {
	return func(yield func(int, *parent[V, U]) bool) {
		if g.parent == nil || !yield(0, g.parent) || g.rest == nil {
			return
		}
		for i, p := range g.rest.parents {
			if !yield(i+1, p) {
				return
			}
		}
	}
}

// Has reports whether the group has this identity.
func (g *Group[V, U]) Has(id Identity) bool { return g.has(id.normal()) }

func (g *Group[V, U]) has(id Identity) bool {
	if !equalLabels(g.labels, id.Labels) || !slices.Equal(g.Ports(), id.Ports) {
		return false
	}
	if g.parent == nil || len(id.Parents) == 0 {
		return g.parent == nil && len(id.Parents) == 0
	}
	var others []*parent[V, U]
	if g.rest != nil {
		others = g.rest.parents
	}
	return g.parent.name == id.Parents[0] &&
		slices.EqualFunc(others, id.Parents[1:], func(p *parent[V, U], name string) bool { return p.name == name })
}

// Identity returns what the items of the group have in common. The map and the list of parents are the caller's.
func (g *Group[V, U]) Identity() Identity {
	id := Identity{Labels: labelMap(g.labels), Ports: g.Ports()}
	for _, p := range g.parents() {
		id.Parents = append(id.Parents, p.name)
	}
	return id
}

// put puts an item into the group, and reports whether it is the first.
func (g *Group[V, U]) put(it *Item[V, U]) (first bool) {
	it.group, it.next = g, g.items
	if it.next != nil {
		it.next.prev = it
	}
	g.items = it
	return it.next == nil
}

// remove takes an item out of the group, and reports whether it was the last.
func (g *Group[V, U]) remove(it *Item[V, U]) (last bool) {
	if it.next != nil {
		it.next.prev = it.prev
	}
	if it.prev != nil {
		it.prev.next = it.next
	} else {
		g.items = it.next
	}
	it.next, it.prev = nil, nil
	return g.items == nil
}

// IsEmpty reports whether the last item has left. The group is no longer in the index then.
func (g *Group[V, U]) IsEmpty() bool { return g.items == nil }

// Items yields the group's items.
func (g *Group[V, U]) Items() iter.Seq[*Item[V, U]] {
	return func(yield func(*Item[V, U]) bool) {
		for it := g.items; it != nil; it = it.next {
			if !yield(it) {
				return
			}
		}
	}
}

// Selections yields the selections that match the group; of a group that is empty, those that did when its last item
// left.
func (g *Group[V, U]) Selections() iter.Seq[*Selection[V, U]] {
	return func(yield func(*Selection[V, U]) bool) {
		for i := range g.matches {
			if !yield(g.matches[i].selection) {
				return
			}
		}
	}
}

// Parents yields the names of the parents, in order.
func (g *Group[V, U]) Parents() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, p := range g.parents() {
			if !yield(p.name) {
				return
			}
		}
	}
}

// Own yields the labels that are the items' own, by name.
func (g *Group[V, U]) Own() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, l := range g.labels {
			if !yield(l.of.name, l.value) {
				return
			}
		}
	}
}

// Get implements selector.Labels: own labels come first, then those of the first parent that has the label.
func (g *Group[V, U]) Get(name string) (string, bool) {
	if l := findLabel(g.labels, name); l != nil {
		return l.value, true
	}
	for _, p := range g.parents() {
		if l := findLabel(p.labels, name); l != nil {
			return l.value, true
		}
	}
	return "", false
}

// overrides reports whether the label comes from the group itself or one of its first n parents.
func (g *Group[V, U]) overrides(name string, n int) bool {
	if findLabel(g.labels, name) != nil {
		return true
	}
	for i, p := range g.parents() {
		if i == n {
			break
		}
		if findLabel(p.labels, name) != nil {
			return true
		}
	}
	return false
}
