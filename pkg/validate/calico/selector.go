package calico

import (
	"errors"

	"github.com/margay-project/margay/pkg/selector"
	"github.com/margay-project/margay/pkg/validate"
)

// selector reads a selector of the spec. Nil: it is absent, or wrong.
func (c *conversion) selector(path, text string) *selector.Selector {
	s, err := c.parseSelector(text)
	if err != nil {
		c.reject(path, "%v", err)
	}
	return s
}

// selector reads a selector of the side. Nil: it is absent, or wrong.
func (c sideAt) selector(field, text string, parse func(string) (*selector.Selector, error)) *selector.Selector {
	s, err := parse(text)
	if err != nil {
		c.reject(c.path(field), "%v", err)
	}
	return s
}

var errGlobal = errors.New("global() may stand in the namespaceSelector of a rule only")

// parseSelector reads a selector in which global() means nothing. Nil: it is absent.
func (c *conversion) parseSelector(text string) (*selector.Selector, error) {
	s, err := c.parseNamespaces(text)
	if s != nil && s.IsGlobal() {
		return nil, errGlobal
	}
	return s, err
}

// parseNamespaces reads the namespaceSelector of a rule. Nil: it is absent, which spaces alone are not: they are all(). A stored one
// may be long: only the newest CRDs limit it.
func (c *conversion) parseNamespaces(text string) (*selector.Selector, error) {
	switch {
	case text == "":
		return nil, nil
	case c.stored:
		return selector.ParseLong(text)
	}
	return selector.Parse(text)
}

// ofNamespaces turns a selector of namespaces into a selector of the endpoints and network sets in them. In a selector of
// namespaces all() means every namespace and global() none; both are found in the parsed selector, never in its text
// (semantics D-6).
func ofNamespaces(s *selector.Selector) *selector.Selector {
	inOne := selector.Has(validate.LabelNamespace)
	if s.IsGlobal() {
		return selector.Not(inOne)
	}
	return s.Prefixed(validate.PrefixNamespace).ReplaceAll(inOne)
}

// unlessUnknown excludes pods whose Namespace is not known, if s selects those by what its labels are not: they may be others. Nil: it does not.
func unlessUnknown(s *selector.Selector) *selector.Selector {
	if !s.Matches(selector.Map(map[string]string{validate.LabelNamespace: "unknown"})) {
		return nil
	}
	unknown := selector.And(selector.Equal(validate.LabelOrchestrator, validate.OrchestratorK8s), selector.Not(selector.Has(validate.PrefixNamespace+validate.LabelName)))
	return selector.Not(unknown)
}

// ofServiceAccounts turns a selector of service accounts into one of the pods that run as them.
func ofServiceAccounts(s *selector.Selector) *selector.Selector {
	return s.Prefixed(validate.PrefixServiceAccount).ReplaceAll(selector.Has(validate.LabelServiceAccount))
}

func inNamespace(namespace string) *selector.Selector {
	return selector.Equal(validate.LabelNamespace, namespace)
}
