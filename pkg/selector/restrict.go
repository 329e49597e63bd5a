package selector

import "slices"

// Restriction is what a selector demands of one label.
type Restriction struct {
	// Values are the values the label may have, sorted, shared (do not change). Nil: it must be present, with any
	// value. Empty but not nil: no value will do, the selector matches nothing.
	Values []string
}

// Restrictions returns, per label, a condition that every matching label set satisfies. It is an index's way to find
// candidates: necessary, not sufficient, so each candidate must still be matched. An empty result says nothing about
// the label sets that may match. The map is the caller's.
func (s *Selector) Restrictions() map[string]Restriction {
	r := s.node().restrict(false)
	if r.labels == nil {
		return map[string]Restriction{}
	}
	return r.labels
}

// requirement is what labels must satisfy for a node to match. The map of a requirement belongs to the caller.
type requirement struct {
	labels map[string]Restriction // nil: nothing
	never  bool                   // nothing satisfies it; labels need not show it
}

func require(label string, values []string) requirement {
	return requirement{
		labels: map[string]Restriction{label: {Values: values}},
		never:  values != nil && len(values) == 0,
	}
}

func (allNode) restrict(negated bool) requirement { return requirement{never: negated} }

func (globalNode) restrict(negated bool) requirement {
	return hasNode{NamespaceLabel}.restrict(!negated)
}

func (n hasNode) restrict(negated bool) requirement {
	if negated {
		return requirement{} // absence cannot be expressed
	}
	return require(n.label, nil)
}

func (n compareNode) restrict(negated bool) requirement {
	switch n.op {
	case opEqual, opNotEqual:
		if negated == (n.op == opNotEqual) {
			return require(n.label, []string{n.value})
		}
		return requirement{}
	}
	return hasNode{n.label}.restrict(negated)
}

func (n setNode) restrict(negated bool) requirement {
	if negated == n.not {
		return require(n.label, n.values)
	}
	return requirement{}
}

func (n notNode) restrict(negated bool) requirement { return n.term.restrict(!negated) }

func (n andNode) restrict(negated bool) requirement {
	if negated {
		return anyOf(n, negated)
	}
	return allOf(n, negated)
}

func (n orNode) restrict(negated bool) requirement {
	if negated {
		return allOf(n, negated)
	}
	return anyOf(n, negated)
}

// allOf is the requirement of terms that must all match: every label any of them restricts, values intersected. The smaller map is
// added to the larger one, so that many labels are not copied for each parenthesis around them.
func allOf(terms []node, negated bool) requirement {
	all := requirement{labels: map[string]Restriction{}}
	for _, t := range terms {
		r := t.restrict(negated)
		all.never = all.never || r.never
		if len(r.labels) > len(all.labels) {
			all.labels, r.labels = r.labels, all.labels
		}
		for label, b := range r.labels {
			a, seen := all.labels[label]
			if seen && a.Values != nil {
				b.Values = intersect(a.Values, b.Values)
			}
			all.labels[label] = b
			all.never = all.never || b.Values != nil && len(b.Values) == 0
		}
	}
	return all
}

// anyOf is the requirement of terms of which one must match: labels that all of them restrict, values united. A term
// that never matches does not count.
func anyOf(terms []node, negated bool) requirement {
	some := requirement{never: true}
	for _, t := range terms {
		r := t.restrict(negated)
		switch {
		case some.never:
			some = r
		case !r.never:
			uniteInto(some.labels, r.labels)
		}
	}
	return some
}

// maxUnited bounds the values of a union. A label that may have more may have any: so the cost of a long chain of "||" is in
// proportion to its length.
const maxUnited = 256

func uniteInto(into, other map[string]Restriction) {
	for label, a := range into {
		b, both := other[label]
		switch {
		case !both:
			delete(into, label)
		case a.Values == nil || b.Values == nil || len(a.Values)+len(b.Values) > maxUnited:
			into[label] = Restriction{}
		default:
			into[label] = Restriction{Values: canonicalSet(slices.Concat(a.Values, b.Values))}
		}
	}
}

// intersect returns the values in both sorted lists, never nil. A nil b is every value.
func intersect(a, b []string) []string {
	if b == nil {
		return a
	}
	out := make([]string, 0, min(len(a), len(b)))
	for _, v := range a {
		if _, ok := slices.BinarySearch(b, v); ok {
			out = append(out, v)
		}
	}
	return out
}
