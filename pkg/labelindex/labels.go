package labelindex

import (
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

// label is a label with one value. There is one of each in an index, so that groups share its text. It exists while it is
// used. There may be very many.
type label[V, U any] struct {
	of    *labelName[V, U]
	value string
	users *users[V, U] // nil: none
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
