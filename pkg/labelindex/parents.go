package labelindex

import (
	"iter"

	"github.com/margay-project/margay/pkg/keyset"
)

// parent is a source of labels. It exists while it has labels or groups; in an index that inherits labels from elsewhere,
// while it has groups.
type parent[V, U any] struct {
	name   string
	labels []*label[V, U] // by name
	groups groupList[V, U]
	alone  users[V, U] // the parent

	before *parent[V, U] // the parent with the labels that it had before, which groups have still; nil: none
	stale  bool          // it is such a one

	filed   []*label[V, U] // those of labels that selections are filed under, as of
	filings uint64         // of the selectionIndex; 0: not known
}

// inheritance has the parents, their labels, and the groups that inherit them.
type inheritance[V, U any] struct {
	interner *interner[V, U]
	parents  keyset.Set[string, parent[V, U]]
	inherit  func(parent string) map[string]string // nil: parents keep their labels here
}

func newInheritance[V, U any](n *interner[V, U], inherit func(parent string) map[string]string) *inheritance[V, U] {
	return &inheritance[V, U]{interner: n, parents: keyset.New(parentName[V, U]), inherit: inherit}
}

func parentName[V, U any](p *parent[V, U]) string { return p.name }

// set gives a parent its labels, nil if it is gone. It yields the groups that inherit others than before, after which the
// parent may be gone. Stale groups keep what they have.
func (h *inheritance[V, U]) set(name string, labels map[string]string) iter.Seq[*Group[V, U]] {
	return func(yield func(*Group[V, U]) bool) {
		if h.inherit != nil && h.parents.Get(name) == nil {
			return
		}
		p := h.parent(name)
		defer h.drop(p)
		if equalLabels(p.labels, labels) {
			return
		}
		h.relabel(p, labels)
		for g := range p.groups.live() {
			if !yield(g) {
				return
			}
		}
	}
}

// labels are those of a parent; nil if it has none. The map is the caller's.
func (h *inheritance[V, U]) labels(name string) map[string]string {
	if p := h.parents.Get(name); p != nil {
		return labelMap(p.labels)
	}
	return nil
}

// count is how many groups have the parent, with whatever labels.
func (h *inheritance[V, U]) count(name string) (n int) {
	for p := h.parents.Get(name); p != nil; p = p.before {
		n += p.groups.len()
	}
	return n
}

// children yields the groups that have the parent, with whatever labels.
func (h *inheritance[V, U]) children(name string) iter.Seq[*Group[V, U]] {
	return func(yield func(*Group[V, U]) bool) {
		for p := h.parents.Get(name); p != nil; p = p.before {
			for g := range p.groups.live() {
				if !yield(g) {
					return
				}
			}
		}
	}
}

// join makes the parents of these names a group's, and leave undoes it.
func (h *inheritance[V, U]) join(g *Group[V, U], names []string) {
	if len(names) > 1 {
		g.more().parents = make([]*parent[V, U], 0, len(names)-1)
	}
	for i, name := range names {
		p := h.parent(name)
		if p.groups.add(g); i == 0 {
			g.parent = p
		} else {
			g.rest.parents = append(g.rest.parents, p)
		}
	}
}

func (h *inheritance[V, U]) leave(g *Group[V, U]) {
	for _, p := range g.parents() {
		p.groups.left()
		h.drop(p)
	}
}

// parent returns the parent of that name, which it makes if there is none.
func (h *inheritance[V, U]) parent(name string) *parent[V, U] {
	p := h.parents.Get(name)
	if p == nil {
		p = &parent[V, U]{name: name}
		p.alone.who = p
		h.parents.Put(p)
		if h.inherit != nil {
			h.relabel(p, h.inherit(name))
		}
	}
	return p
}

// drop forgets the parent if nothing keeps it.
func (h *inheritance[V, U]) drop(p *parent[V, U]) {
	switch {
	case p.groups.len() > 0:
	case p.stale:
		h.relabel(p, nil)
		now := h.parents.Get(p.name)
		after := now
		for after.before != p {
			after = after.before
		}
		after.before = p.before
		h.drop(now)
	case p.before == nil && (len(p.labels) == 0 || h.inherit != nil):
		h.relabel(p, nil)
		h.parents.Delete(p.name)
	}
}

// relabel replaces the labels of a parent. The caller matches its groups again.
func (h *inheritance[V, U]) relabel(p *parent[V, U], labels map[string]string) {
	was := p.labels
	p.labels = h.interner.intern(labels)
	p.filed, p.filings = nil, 0
	for _, l := range p.labels {
		l.addParent(p)
	}
	for _, l := range was {
		l.dropParent(p)
		h.interner.dropLabel(l)
	}
}
