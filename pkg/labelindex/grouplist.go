package labelindex

import (
	"iter"
	"slices"
)

// groupList is groups of an index. Most lists have one. Removing one of many takes no search: groups that are gone are
// skipped, and taken out together when they are many.
type groupList[V, U any] struct {
	one  *Group[V, U]
	many *manyGroups[V, U] // nil: there is at most one
}

type manyGroups[V, U any] struct {
	groups []*Group[V, U]
	gone   int
}

func (l *groupList[V, U]) add(g *Group[V, U]) {
	switch {
	case l.many != nil:
		l.many.groups = append(l.many.groups, g)
	case l.one != nil:
		l.many = &manyGroups[V, U]{groups: []*Group[V, U]{l.one, g}}
		l.one = nil
	default:
		l.one = g
	}
}

func (l *groupList[V, U]) len() int {
	switch {
	case l.many != nil:
		return len(l.many.groups) - l.many.gone
	case l.one != nil:
		return 1
	}
	return 0
}

// left notes that one of the groups is gone.
func (l *groupList[V, U]) left() {
	const tolerable = 8 // one in so many
	if l.many == nil {
		l.one = nil
		return
	}
	l.many.gone++
	if l.many.gone*tolerable < len(l.many.groups) {
		return
	}
	rest := make([]*Group[V, U], 0, l.len())
	for _, g := range l.many.groups {
		if g.items != nil {
			rest = append(rest, g)
		}
	}
	switch len(rest) {
	case 0:
		l.many = nil
	case 1:
		l.one, l.many = rest[0], nil
	default:
		l.many = &manyGroups[V, U]{groups: rest}
	}
}

// live yields the groups that are not gone.
func (l *groupList[V, U]) live() iter.Seq[*Group[V, U]] {
	return func(yield func(*Group[V, U]) bool) {
		if l.many == nil {
			if l.one != nil && l.one.items != nil {
				yield(l.one)
			}
			return
		}
		for _, g := range l.many.groups {
			if g.items != nil && !yield(g) {
				return
			}
		}
	}
}

// without removes one element, whatever the order.
func without[T comparable](list []T, gone T) []T {
	i := slices.Index(list, gone)
	if i < 0 {
		return list
	}
	last := len(list) - 1
	list[i] = list[last]
	clear(list[last:])
	if last == 0 {
		return nil
	}
	return list[:last]
}
