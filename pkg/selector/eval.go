package selector

import (
	"slices"
	"strings"
)

// Labels is what a selector is matched against. Implementations must be safe for the caller's concurrency; selectors
// only read.
type Labels interface {
	// Get returns the value of a label, and whether the label is present.
	Get(name string) (value string, ok bool)
}

// Map is the simplest Labels. A nil Map has no labels.
type Map map[string]string

// Get implements Labels.
func (m Map) Get(name string) (string, bool) {
	v, ok := m[name]
	return v, ok
}

// Matches reports whether the labels satisfy the selector. An absent label fails every predicate but != and not in.
// It does not allocate, and takes time in proportion to the length of the text.
func (s *Selector) Matches(l Labels) bool {
	return s.root == nil || s.root.matches(l)
}

func (allNode) matches(Labels) bool { return true }

func (globalNode) matches(l Labels) bool {
	_, ok := l.Get(NamespaceLabel)
	return !ok
}

func (n hasNode) matches(l Labels) bool {
	_, ok := l.Get(n.label)
	return ok
}

func (n compareNode) matches(l Labels) bool {
	v, ok := l.Get(n.label)
	switch n.op {
	case opEqual:
		return ok && v == n.value
	case opNotEqual:
		return !ok || v != n.value
	case opContains:
		return ok && strings.Contains(v, n.value)
	case opStartsWith:
		return ok && strings.HasPrefix(v, n.value)
	case opEndsWith:
		return ok && strings.HasSuffix(v, n.value)
	}
	return false
}

func (n setNode) matches(l Labels) bool {
	v, ok := l.Get(n.label)
	if ok {
		_, ok = slices.BinarySearch(n.values, v)
	}
	return ok != n.not
}

func (n notNode) matches(l Labels) bool { return !n.term.matches(l) }

func (n andNode) matches(l Labels) bool {
	for _, t := range n {
		if !t.matches(l) {
			return false
		}
	}
	return true
}

func (n orNode) matches(l Labels) bool {
	for _, t := range n {
		if t.matches(l) {
			return true
		}
	}
	return false
}
