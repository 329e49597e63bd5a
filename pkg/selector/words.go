package selector

import (
	"slices"
	"strings"
)

// serviceAccountLabel has the name of a pod's service account.
const serviceAccountLabel = "projectcalico.org/serviceaccount"

// OfKnownNamespace is the condition, as it is printed, by which the conversion excludes pods whose Namespace is not known. No author writes it.
const OfKnownNamespace = `!(projectcalico.org/orchestrator == "k8s" && !has(pcns.projectcalico.org/name))`

// Words is the selector for people: as Kubernetes says it if a Kubernetes object is behind it, and otherwise as the author
// of a Calico policy wrote its parts, without the labels by which the conversion has joined them: `selector role ==
// "front" in namespace shop`, `selector all() in namespaces with env == "prod"`, `selector app == "db" with service account
// web`. A selector that has no such parts stays whole: `selector app == "db" || pcns.env == "dev"`.
func (s *Selector) Words() string {
	if text, ok := s.Kubernetes(); ok {
		return text
	}
	terms, isAnd := s.node().(andNode)
	if !isAnd {
		terms = andNode{s.node()}
	}
	var w wordParts
	for _, t := range terms {
		if !w.add(t) {
			return "selector " + s.String()
		}
	}
	return w.String()
}

// wordParts are the conditions of a selector, grouped by the labels they are about: the endpoint's own, its
// namespace's, its service account's.
type wordParts struct {
	own, namespaces, accounts []node
	namespace, account        string // in words
}

// add notes one condition; false if it is about several things, or has no words.
func (w *wordParts) add(n node) bool {
	if newSelector(n).String() == OfKnownNamespace {
		return true
	}
	labels := map[string]bool{}
	newSelector(n).LabelNames(labels)
	of := func(prefix string) int {
		count := 0
		for l := range labels {
			if strings.HasPrefix(l, prefix) {
				count++
			}
		}
		return count
	}
	switch {
	case labels[NamespaceLabel]:
		return once(&w.namespace, namespaceWords(n))
	case labels[serviceAccountLabel]:
		return once(&w.account, accountWords(n))
	case of(calicoPrefix) > 0:
		return false
	case of(namespacePrefix)+of(serviceAccountPrefix) == 0:
		w.own = append(w.own, n)
	case of(namespacePrefix) == len(labels):
		w.namespaces = append(w.namespaces, withoutPrefix(n, namespacePrefix))
	case of(serviceAccountPrefix) == len(labels):
		w.accounts = append(w.accounts, withoutPrefix(n, serviceAccountPrefix))
	default:
		return false
	}
	return true
}

// once sets an empty text; false if there are no words, or others already.
func once(to *string, words string) bool {
	if words == "" || *to != "" {
		return false
	}
	*to = words
	return true
}

func (w *wordParts) String() string {
	text := "selector " + joined(w.own)
	if w.namespace != "" {
		text += " " + w.namespace
	}
	if len(w.namespaces) > 0 {
		text += " in namespaces with " + joined(w.namespaces)
	}
	if w.account != "" {
		text += " " + w.account
	}
	if len(w.accounts) > 0 {
		text += " with a service account that has " + joined(w.accounts)
	}
	return text
}

// joined is the text of a conjunction; all() of no terms.
func joined(terms []node) string {
	if len(terms) == 0 {
		return "all()"
	}
	return newSelector(joinAnd(terms)).String()
}

// namespaceWords says what a condition on the namespace means; empty if there are no words for it.
func namespaceWords(n node) string {
	if not, is := n.(notNode); is {
		if _, has := not.term.(hasNode); has {
			return "outside of namespaces"
		}
		return ""
	}
	if _, has := n.(hasNode); has {
		return "in any namespace"
	}
	if _, global := n.(globalNode); global {
		return "outside of namespaces"
	}
	return oneOf(n, "in namespace ")
}

// accountWords says what a condition on the service account means; empty if there are no words for it.
func accountWords(n node) string {
	if _, has := n.(hasNode); has {
		return "with any service account"
	}
	return oneOf(n, "with service account ")
}

// oneOf lists the values that a label must have one of, behind the words; empty if it may have others, or one that is no name.
func oneOf(n node, words string) string {
	names := slices.Clone(namesOf(n))
	if len(names) == 0 || !isPlain(names...) {
		return ""
	}
	return words + strings.Join(names, " or ")
}

// withoutPrefix removes the prefix from the labels of a condition.
func withoutPrefix(n node, prefix string) node {
	return n.rewrite(func(n node) node {
		switch n := n.(type) {
		case hasNode:
			n.label = strings.TrimPrefix(n.label, prefix)
			return n
		case compareNode:
			n.label = strings.TrimPrefix(n.label, prefix)
			return n
		case setNode:
			n.label = strings.TrimPrefix(n.label, prefix)
			return n
		}
		return n
	})
}
