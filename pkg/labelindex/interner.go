package labelindex

import (
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/keyset"
)

// interner has every label that a group, a parent or a selection uses, once.
type interner[V, U any] struct{ names map[string]*labelName[V, U] }

func newInterner[V, U any]() *interner[V, U] {
	return &interner[V, U]{names: map[string]*labelName[V, U]{}}
}

// name returns the name, which it makes if there is none.
func (n *interner[V, U]) name(name string) *labelName[V, U] {
	of := n.names[name]
	if of == nil {
		of = &labelName[V, U]{name: name, values: keyset.New(labelValue[V, U])}
		n.names[name] = of
	}
	return of
}

func labelValue[V, U any](l *label[V, U]) string { return l.value }

// label returns the label, which it makes if there is none.
func (n *interner[V, U]) label(name, value string) *label[V, U] {
	of := n.name(name)
	l := of.values.Get(value)
	if l == nil {
		l = &label[V, U]{of: of, value: value}
		of.values.Put(l)
	}
	return l
}

// dropLabel forgets the label if nothing uses it.
func (n *interner[V, U]) dropLabel(l *label[V, U]) {
	if l.isUsed() {
		return
	}
	l.of.values.Delete(l.value)
	n.dropName(l.of)
}

// dropName forgets the name if nothing uses it. It may have been forgotten before, and be another by now.
func (n *interner[V, U]) dropName(of *labelName[V, U]) {
	if of.values.Len()+len(of.selections) == 0 && n.names[of.name] == of {
		delete(n.names, of.name)
	}
}

// intern returns the labels by name; the caller must make use of them, or drop them.
func (n *interner[V, U]) intern(labels map[string]string) []*label[V, U] {
	if len(labels) == 0 {
		return nil
	}
	list := make([]*label[V, U], 0, len(labels))
	for name, value := range labels {
		list = append(list, n.label(name, value))
	}
	slices.SortFunc(list, func(a, b *label[V, U]) int { return strings.Compare(a.of.name, b.of.name) })
	return list
}
