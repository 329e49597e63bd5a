package calc

import (
	"iter"
	"slices"
	"strings"
)

// labelName is the name of a label, with the values it has in an index.
type labelName struct {
	name       string
	values     map[string]*labelValue
	selections map[*selection]struct{} // filed under it: it must be present
	most       int                     // values, see shrink
}

// labelValue is a label with one value, and who has it. There is one of each in an index, so that groups share their text.
// It exists while it is used.
type labelValue struct {
	of     *labelName
	value  string
	groups groupList // that have it as their own
	uses   *labelUses
}

// labelUses is what few labels have.
type labelUses struct {
	parents    []*parent    // that have it
	selections []*selection // filed under it: the label must have this value, or one of some
}

// use returns the label's uses, to add one.
func (l *labelValue) use() *labelUses {
	if l.uses == nil {
		l.uses = &labelUses{}
	}
	return l.uses
}

// selected returns the selections filed under the label.
func (l *labelValue) selected() []*selection {
	if l.uses == nil {
		return nil
	}
	return l.uses.selections
}

// all yields the groups that have the label, themselves or by a profile; those of several profiles more than once.
func (l *labelValue) all() iter.Seq[*group] {
	return func(yield func(*group) bool) {
		for g := range l.groups.live() {
			if !yield(g) {
				return
			}
		}
		if l.uses == nil {
			return
		}
		for _, p := range l.uses.parents {
			for g := range p.groups.live() {
				if !yield(g) {
					return
				}
			}
		}
	}
}

// count is the number of groups that all yields.
func (l *labelValue) count() int {
	n := l.groups.len()
	if l.uses != nil {
		for _, p := range l.uses.parents {
			n += p.groups.len()
		}
	}
	return n
}

// name returns the name, which it makes if there is none.
func (x *labelIndex) name(name string) *labelName {
	n := x.labels[name]
	if n == nil {
		n = &labelName{name: name, values: map[string]*labelValue{}}
		x.labels[name] = n
	}
	return n
}

// label returns the label, which it makes if there is none.
func (x *labelIndex) label(name, value string) *labelValue {
	n := x.name(name)
	l := n.values[value]
	if l == nil {
		l = &labelValue{of: n, value: value}
		n.values[value] = l
		n.most = max(n.most, len(n.values))
	}
	return l
}

func (x *labelIndex) dropLabelIfUnused(l *labelValue) {
	if l.groups.len() > 0 || l.uses != nil && len(l.uses.parents)+len(l.uses.selections) > 0 {
		return
	}
	delete(l.of.values, l.value)
	shrink(&l.of.values, &l.of.most)
	x.dropNameIfUnused(l.of)
}

func (x *labelIndex) dropNameIfUnused(n *labelName) {
	if len(n.values)+len(n.selections) == 0 {
		delete(x.labels, n.name)
	}
}

// findLabel returns the label of that name from a list by name; nil if it is not there.
func findLabel(labels []*labelValue, name string) *labelValue {
	const few = 16
	if len(labels) > few { // a tenant may give a pod tens of thousands
		i, ok := slices.BinarySearchFunc(labels, name, func(l *labelValue, name string) int {
			return strings.Compare(l.of.name, name)
		})
		if !ok {
			return nil
		}
		return labels[i]
	}
	for _, l := range labels { // mostly of different lengths: faster than a binary search
		if l.of.name == name {
			return l
		}
	}
	return nil
}

func equalLabels(labels []*labelValue, m map[string]string) bool {
	if len(labels) != len(m) {
		return false
	}
	for _, l := range labels {
		if v, ok := m[l.of.name]; !ok || v != l.value {
			return false
		}
	}
	return true
}

func labelMap(labels []*labelValue) map[string]string {
	m := make(map[string]string, len(labels))
	for _, l := range labels {
		m[l.of.name] = l.value
	}
	return m
}

// groupList is groups of an index. Most have one; of more, removing one takes no search: those that are gone are skipped,
// and taken out together when they are many.
type groupList struct {
	one  *group
	many *manyGroups // nil: there is at most one
}

type manyGroups struct {
	groups []*group
	gone   int
}

func (l *groupList) add(g *group) {
	switch {
	case l.many != nil:
		l.many.groups = append(l.many.groups, g)
	case l.one != nil:
		l.many = &manyGroups{groups: []*group{l.one, g}}
		l.one = nil
	default:
		l.one = g
	}
}

func (l *groupList) len() int {
	switch {
	case l.many != nil:
		return len(l.many.groups) - l.many.gone
	case l.one != nil:
		return 1
	}
	return 0
}

// left notes that one of the groups is gone.
func (l *groupList) left() {
	const tolerable = 8 // one in so many
	if l.many == nil {
		l.one = nil
		return
	}
	l.many.gone++
	if l.many.gone*tolerable < len(l.many.groups) {
		return
	}
	rest := make([]*group, 0, l.len())
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
		l.many = &manyGroups{groups: rest}
	}
}

// live yields the groups that are not gone.
func (l *groupList) live() iter.Seq[*group] {
	return func(yield func(*group) bool) {
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
