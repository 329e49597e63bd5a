package selector

import (
	"slices"
	"strings"
)

// NamespaceLabel is the label every namespaced endpoint and network set carries, and no global one does. global()
// means its absence.
const NamespaceLabel = "projectcalico.org/namespace"

// Selector is a parsed selector. Immutable and safe for concurrent use. The zero value is all().
type Selector struct {
	root node   // nil: all()
	text string // canonical; empty only in the zero value
}

func newSelector(root node) *Selector {
	const long = 512 // of these there are few, and their search takes long
	text := string(root.print(nil, precedenceOr))
	if len(text) <= long {
		root = root.rewrite(func(n node) node { return within(text, n) })
	}
	return &Selector{root: root, text: text}
}

func (s *Selector) node() node {
	if s.root == nil {
		return allNode{}
	}
	return s.root
}

// String returns the canonical text: one space around operators, double quotes (single ones around a value that holds
// a double quote), sorted set literals without duplicates, and no parentheses but the needed ones. Selectors with
// equal text match the same labels, and Parse(s.String()) has the same text if it is within Parse's limits.
func (s *Selector) String() string {
	if s.root == nil {
		return allText
	}
	return s.text
}

// Equal reports whether both have the same canonical text. Nil equals only nil.
func (s *Selector) Equal(o *Selector) bool {
	if s == nil || o == nil {
		return s == o
	}
	return s.String() == o.String()
}

// IsAll reports whether s is all(), and not merely equivalent to it.
func (s *Selector) IsAll() bool {
	_, ok := s.node().(allNode)
	return ok
}

// IsGlobal reports whether s is global(). Only a rule's namespaceSelector may be; Parse accepts it because it cannot
// know where its text comes from.
func (s *Selector) IsGlobal() bool {
	_, ok := s.node().(globalNode)
	return ok
}

// The constructors below take any label and value. Labels and values that the language cannot write down (a value with both kinds of
// quote, a label with other characters than the grammar's) works, and is printed in hexadecimal: such a text is still
// unique, but cannot be parsed.

// All returns all(), which matches everything.
func All() *Selector { return newSelector(allNode{}) }

// Has matches labels that have the label, with any value.
func Has(label string) *Selector { return newSelector(hasNode{label}) }

// Equal matches labels that have the label with this value.
func Equal(label, value string) *Selector { return newSelector(compareNode{label, opEqual, value}) }

// NotEqual matches labels that lack the label or have another value.
func NotEqual(label, value string) *Selector {
	return newSelector(compareNode{label, opNotEqual, value})
}

// In matches labels that have the label with one of the values. Without values it matches nothing.
func In(label string, values ...string) *Selector {
	return newSelector(setNode{label: label, values: canonicalSet(values)})
}

// NotIn matches labels that lack the label or have none of the values. Without values it matches everything.
func NotIn(label string, values ...string) *Selector {
	return newSelector(setNode{label: label, not: true, values: canonicalSet(values)})
}

// And matches what every part matches. Conjunctions among the parts are flattened, all() vanishes, nil parts are
// ignored; of no parts it is all(). A part global() is written out, since it may only stand alone.
func And(parts ...*Selector) *Selector {
	var terms []node
	for _, p := range parts {
		if p == nil {
			continue
		}
		if and, ok := p.node().(andNode); ok {
			terms = append(terms, and...)
		} else {
			terms = append(terms, writeOutGlobal(p.node()))
		}
	}
	terms = slices.DeleteFunc(terms, isAll)
	if len(terms) == 0 {
		return All()
	}
	return newSelector(joinAnd(terms))
}

// Not matches what s does not match. A double negation cancels out.
func Not(s *Selector) *Selector {
	return newSelector(negate(writeOutGlobal(s.node())))
}

// canonicalSet returns a sorted copy without duplicates, never nil.
func canonicalSet(values []string) []string {
	set := append(make([]string, 0, len(values)), values...)
	slices.Sort(set)
	return slices.Compact(set)
}

// joinAnd returns the conjunction of one or more terms, flat.
func joinAnd(terms []node) node {
	flat := make(andNode, 0, len(terms))
	for _, t := range terms {
		if inner, ok := t.(andNode); ok {
			flat = append(flat, inner...)
		} else {
			flat = append(flat, t)
		}
	}
	if len(flat) == 1 {
		return flat[0]
	}
	return flat
}

// joinOr returns the disjunction of one or more terms, flat.
func joinOr(terms []node) node {
	flat := make(orNode, 0, len(terms))
	for _, t := range terms {
		if inner, ok := t.(orNode); ok {
			flat = append(flat, inner...)
		} else {
			flat = append(flat, t)
		}
	}
	if len(flat) == 1 {
		return flat[0]
	}
	return flat
}

// negate returns the negation; a double negation cancels out.
func negate(n node) node {
	if not, ok := n.(notNode); ok {
		return not.term
	}
	return notNode{n}
}

// node is one node of the expression tree. Nodes are never changed.
type node interface {
	// matches must not allocate.
	matches(l Labels) bool
	// print appends the node's text, in parentheses if it binds weaker than outer.
	print(b []byte, outer precedence) []byte
	// rewrite returns the tree with every leaf replaced by leaf(leaf).
	rewrite(leaf func(node) node) node
	// restrict returns what labels must satisfy for the node, or with negated its negation, to match.
	restrict(negated bool) requirement
}

type (
	allNode     struct{}
	globalNode  struct{} // only ever the root
	hasNode     struct{ label string }
	compareNode struct {
		label string
		op    operator
		value string
	}
	setNode struct {
		label  string
		not    bool
		values []string // sorted, no duplicates
	}
	notNode struct{ term node }
	andNode []node // two or more, none of them an andNode
	orNode  []node // two or more, none of them an orNode
)

// operator compares a label with one value.
type operator uint8

const (
	opEqual operator = iota
	opNotEqual
	opContains
	opStartsWith
	opEndsWith
)

var operatorText = [...]string{"==", "!=", "contains", "starts with", "ends with"}

func (op operator) String() string { return operatorText[op] }

func isAll(n node) bool {
	_, ok := n.(allNode)
	return ok
}

// validLabel reports whether the grammar can express the label.
func validLabel(label string) bool {
	return label != "" && strings.IndexFunc(label, func(r rune) bool { return r > 0x7f || !isLabelByte(byte(r)) }) < 0
}

func isLabelByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		c == '_' || c == '.' || c == '/' || c == '-'
}
