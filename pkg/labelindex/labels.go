package labelindex

import (
	"iter"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/keyset"
)

// labelName is the name of a label, with the values it has in an index.
type labelName[V, U any] struct {
	name       string
	values     keyset.Set[string, label[V, U]]
	selections map[*Selection[V, U]]struct{} // filed under it: it must be present
}

// label is a label with one value, and the groups that have it. There is one of each in an index, so that groups share
// its text. It exists while it is used.
type label[V, U any] struct {
	of     *labelName[V, U]
	value  string
	groups groupList[V, U] // that have it as their own
	uses   *labelUses[V, U]
}

// labelUses is what few labels have.
type labelUses[V, U any] struct {
	parents    []*parent[V, U]    // that have it
	selections []*Selection[V, U] // filed under it: the label must have this value, or one of some
}

// use returns the label's uses, to add one.
func (l *label[V, U]) use() *labelUses[V, U] {
	if l.uses == nil {
		l.uses = &labelUses[V, U]{}
	}
	return l.uses
}

// selected returns the selections filed under the label.
func (l *label[V, U]) selected() []*Selection[V, U] {
	if l.uses == nil {
		return nil
	}
	return l.uses.selections
}

// all yields the groups that have the label, themselves or by a parent; those of several parents more than once.
func (l *label[V, U]) all() iter.Seq[*Group[V, U]] {
	return func(yield func(*Group[V, U]) bool) {
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
func (l *label[V, U]) count() int {
	n := l.groups.len()
	if l.uses != nil {
		for _, p := range l.uses.parents {
			n += p.groups.len()
		}
	}
	return n
}

// findLabel returns the label of that name from a list by name; nil if it is not there.
func findLabel[V, U any](labels []*label[V, U], name string) *label[V, U] {
	const few = 16
	if len(labels) > few { // a tenant may give a pod tens of thousands
		i, ok := slices.BinarySearchFunc(labels, name, func(l *label[V, U], name string) int {
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

func equalLabels[V, U any](labels []*label[V, U], m map[string]string) bool {
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

func labelMap[V, U any](labels []*label[V, U]) map[string]string {
	m := make(map[string]string, len(labels))
	for _, l := range labels {
		m[l.of.name] = l.value
	}
	return m
}
