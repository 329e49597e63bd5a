package selector

import (
	"slices"
	"strings"
)

// Labels that the conversion of Kubernetes objects puts into selectors.
const (
	orchestratorLabel    = "projectcalico.org/orchestrator"
	orchestratorK8s      = "k8s"
	namespacePrefix      = "pcns." // before the labels of a pod's namespace
	serviceAccountPrefix = "pcsa."
	calicoPrefix         = "projectcalico.org/"
	metadataName         = "kubernetes.io/metadata.name"
)

// Kubernetes says which pods a selector means that was made of a Kubernetes object, in the words of kubectl: "pods
// app=web,tier!=x in namespace shop", "all pods in namespaces with team=a". Not ok for a selector that its author wrote
// in this package's language.
func (s *Selector) Kubernetes() (text string, ok bool) {
	terms, isAnd := s.node().(andNode)
	if !isAnd {
		terms = andNode{s.node()}
	}
	if !slices.ContainsFunc(terms, isOrchestrator) {
		return "", false
	}
	var k kubernetesText
	for _, t := range terms {
		if !isOrchestrator(t) && !k.add(t) {
			return "", false
		}
	}
	return k.String(), true
}

func isOrchestrator(n node) bool {
	c, ok := n.(compareNode)
	return ok && c == compareNode{orchestratorLabel, opEqual, orchestratorK8s}
}

// kubernetesText collects the requirements of a selector.
type kubernetesText struct {
	namespace        string   // of the pods; empty: not one alone
	pods, namespaces []string // what labels must be
	names            []string // of namespaces, from a requirement of the label that has it
}

// add notes one requirement; false if Kubernetes has no words for it.
func (k *kubernetesText) add(n node) bool {
	label, text, ok := requirementText(n)
	inherited, ofNamespace := strings.CutPrefix(label, namespacePrefix)
	switch {
	case !ok || strings.HasPrefix(label, serviceAccountPrefix):
		return false
	case label == NamespaceLabel:
		if c, is := n.(compareNode); is && c.op == opEqual {
			k.namespace = c.value
			return true
		}
		_, is := n.(hasNode) // every pod has it
		return is
	case strings.HasPrefix(label, calicoPrefix):
		return false
	case !ofNamespace:
		k.pods = append(k.pods, text(label))
	case n == node(hasNode{namespacePrefix + metadataName}): // every Namespace has it
		return true
	case inherited == metadataName && len(k.names) == 0 && len(namesOf(n)) > 0:
		k.names = namesOf(n)
	default:
		k.namespaces = append(k.namespaces, text(inherited))
	}
	return true
}

// namesOf are the values of which a label must have one; none if it may have others.
func namesOf(n node) []string {
	switch n := n.(type) {
	case compareNode:
		if n.op == opEqual {
			return []string{n.value}
		}
	case setNode:
		if !n.not {
			return n.values
		}
	}
	return nil
}

// valuesOf are the values that a term compares a label with.
func valuesOf(n node) []string {
	switch n := n.(type) {
	case compareNode:
		return []string{n.value}
	case setNode:
		return n.values
	}
	return nil
}

func (k *kubernetesText) String() string {
	text := "all pods"
	if len(k.pods) > 0 {
		text = "pods " + strings.Join(k.pods, ",")
	}
	names := k.names
	if k.namespace != "" {
		names = []string{k.namespace}
		if len(k.names) > 0 {
			k.namespaces = append(k.namespaces, metadataName+" in ("+strings.Join(k.names, ",")+")")
		}
	}
	switch {
	case len(names) == 1:
		text += " in namespace " + names[0]
	case len(names) > 1:
		text += " in namespaces " + strings.Join(names, ", ")
	case len(k.namespaces) > 0:
		text += " in namespaces"
	default:
		text += " in all namespaces"
	}
	if len(k.namespaces) > 0 {
		text += " with " + strings.Join(k.namespaces, ",")
	}
	return text
}

// isPlain reports whether values are ones that labels can have. kubectl writes values without quotes, so that another one could pass for further
// requirements: the author of app != "x in namespace shop" would have people read what is not there.
func isPlain(values ...string) bool {
	return !slices.ContainsFunc(values, func(value string) bool {
		return strings.ContainsFunc(value, func(r rune) bool { return r > 0x7f || !isLabelByte(byte(r)) || r == '/' })
	})
}

// requirementText is the label that a term is about, and how kubectl writes the term with the label's name.
func requirementText(n node) (label string, text func(label string) string, ok bool) {
	if !isPlain(valuesOf(n)...) {
		return "", nil, false
	}
	switch n := n.(type) {
	case hasNode:
		return n.label, func(l string) string { return l }, true
	case notNode:
		if has, is := n.term.(hasNode); is {
			return has.label, func(l string) string { return "!" + l }, true
		}
	case compareNode:
		switch n.op {
		case opEqual:
			return n.label, func(l string) string { return l + "=" + n.value }, true
		case opNotEqual:
			return n.label, func(l string) string { return l + "!=" + n.value }, true
		}
	case setNode:
		in := " in ("
		if n.not {
			in = " notin ("
		}
		return n.label, func(l string) string { return l + in + strings.Join(n.values, ",") + ")" }, true
	}
	return "", nil, false
}
