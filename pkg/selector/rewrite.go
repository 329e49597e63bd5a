package selector

import "strings"

// Prefixed returns s with the prefix before every label name, as namespace selectors (pcns.) and service-account
// selectors (pcsa.) need. The parsed tree is rewritten, so values are never touched. all() and global() stay as they
// are.
func (s *Selector) Prefixed(prefix string) *Selector {
	return newSelector(s.node().rewrite(func(n node) node {
		switch n := n.(type) {
		case hasNode:
			n.label = prefix + n.label
			return n
		case compareNode:
			n.label = prefix + n.label
			return n
		case setNode:
			n.label = prefix + n.label
			return n
		}
		return n
	}))
}

// ReplaceAll returns s with every all() in it, whether the whole expression or a part, replaced. In a namespace
// selector all() means every namespace, has(projectcalico.org/namespace), and not every endpoint; replace before And,
// which drops all().
func (s *Selector) ReplaceAll(with *Selector) *Selector {
	n := s.node()
	if isAll(n) {
		return with
	}
	replacement := writeOutGlobal(with.node())
	return newSelector(n.rewrite(func(n node) node {
		if isAll(n) {
			return replacement
		}
		return n
	}))
}

// within returns a leaf whose labels and values are parts of the text, where the text has them: so that a selector keeps
// neither the text that it was parsed from nor strings of its own. There may be very many.
func within(text string, leaf node) node {
	part := func(s string) string {
		if i := strings.Index(text, s); i >= 0 {
			return text[i : i+len(s)]
		}
		return s
	}
	switch n := leaf.(type) {
	case hasNode:
		n.label = part(n.label)
		return n
	case compareNode:
		n.label, n.value = part(n.label), part(n.value)
		return n
	case setNode:
		values := make([]string, 0, len(n.values))
		for _, v := range n.values {
			values = append(values, part(v))
		}
		n.label, n.values = part(n.label), values
		return n
	}
	return leaf
}

// writeOutGlobal returns n without global(), which may not be part of a larger expression.
func writeOutGlobal(n node) node {
	if _, ok := n.(globalNode); ok {
		return notNode{hasNode{NamespaceLabel}}
	}
	return n
}

func (n allNode) rewrite(leaf func(node) node) node     { return leaf(n) }
func (n globalNode) rewrite(leaf func(node) node) node  { return leaf(n) }
func (n hasNode) rewrite(leaf func(node) node) node     { return leaf(n) }
func (n compareNode) rewrite(leaf func(node) node) node { return leaf(n) }
func (n setNode) rewrite(leaf func(node) node) node     { return leaf(n) }

func (n notNode) rewrite(leaf func(node) node) node {
	return negate(n.term.rewrite(leaf))
}

func (n andNode) rewrite(leaf func(node) node) node {
	return joinAnd(rewriteTerms(n, leaf))
}

func (n orNode) rewrite(leaf func(node) node) node {
	return joinOr(rewriteTerms(n, leaf))
}

func rewriteTerms(terms []node, leaf func(node) node) []node {
	out := make([]node, len(terms))
	for i, t := range terms {
		out[i] = t.rewrite(leaf)
	}
	return out
}

// LabelNames adds to names those of the labels that decide whether s matches: labels that differ in others only are the
// same to it.
func (s *Selector) LabelNames(names map[string]bool) {
	s.node().rewrite(func(n node) node {
		switch n := n.(type) {
		case globalNode:
			names[NamespaceLabel] = true
		case hasNode:
			names[n.label] = true
		case compareNode:
			names[n.label] = true
		case setNode:
			names[n.label] = true
		}
		return n
	})
}
