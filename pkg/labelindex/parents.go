package labelindex

import "iter"

// parent is a source of labels. It exists while it has labels or groups; in an index that inherits labels from elsewhere,
// while it has groups.
type parent[V, U any] struct {
	name   string
	labels []*label[V, U] // by name
	groups groupList[V, U]
}

// SetParent gives a parent its labels, nil if it is gone, and returns the matches that started or stopped.
func (x *Index[V, U]) SetParent(name string, labels map[string]string) []Match[V, U] {
	if x.inherit != nil && x.parents[name] == nil {
		return nil
	}
	p := x.parent(name)
	if equalLabels(p.labels, labels) {
		x.dropParentIfUnused(p)
		return nil
	}
	x.relabel(p, labels)
	var changed []Match[V, U]
	for g := range p.groups.live() {
		changed = append(changed, x.rematch(g)...)
	}
	x.dropParentIfUnused(p)
	return changed
}

// ParentLabels returns the labels of a parent; nil if it has none. The map is the caller's.
func (x *Index[V, U]) ParentLabels(name string) map[string]string {
	p := x.parents[name]
	if p == nil {
		return nil
	}
	return labelMap(p.labels)
}

// IsParent reports whether any item has the parent.
func (x *Index[V, U]) IsParent(name string) bool {
	p := x.parents[name]
	return p != nil && p.groups.len() > 0
}

// Children yields the groups that have the parent.
func (x *Index[V, U]) Children(name string) iter.Seq[*Group[V, U]] {
	if p := x.parents[name]; p != nil {
		return p.groups.live()
	}
	return func(func(*Group[V, U]) bool) {}
}

// parent returns the parent of that name, which it makes if there is none.
func (x *Index[V, U]) parent(name string) *parent[V, U] {
	p := x.parents[name]
	if p == nil {
		p = &parent[V, U]{name: name}
		x.parents[name] = p
		if x.inherit != nil {
			x.relabel(p, x.inherit(name))
		}
	}
	return p
}

func (x *Index[V, U]) dropParentIfUnused(p *parent[V, U]) {
	if p.groups.len() > 0 || len(p.labels) > 0 && x.inherit == nil {
		return
	}
	x.relabel(p, nil)
	delete(x.parents, p.name)
}

// relabel replaces the labels of a parent. What matches its groups is for the caller to see to.
func (x *Index[V, U]) relabel(p *parent[V, U], labels map[string]string) {
	was := p.labels
	p.labels = x.intern(labels)
	for _, l := range p.labels {
		l.use().parents = append(l.use().parents, p)
	}
	for _, l := range was {
		l.uses.parents = without(l.uses.parents, p)
		x.dropLabelIfUnused(l)
	}
}
