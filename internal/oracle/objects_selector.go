package oracle

import "strings"

// holds reports whether a selector is true of the labels. It evaluates the text as it reads it, so that it shares nothing
// with package selector. The text must be valid (semantics §9).
func holds(text string, labels map[string]string) bool { return holdsOf(text, labels, true) }

// holdsOf is holds where all() is not true of everything: in a selector of namespaces it is true of what has a namespace, in
// one of service accounts of what has one (semantics §8). Spaces alone are all(), and a text of no characters is no condition.
func holdsOf(text string, labels map[string]string, all bool) bool {
	switch {
	case text == "":
		return true
	case strings.TrimSpace(text) == "":
		return all
	}
	r := &selectorReader{rest: text, labels: labels, all: all}
	return r.or()
}

type selectorReader struct {
	rest   string
	labels map[string]string
	all    bool // the value of all()
}

// is reads a token if it comes next.
func (r *selectorReader) is(token string) bool {
	r.rest = strings.TrimLeft(r.rest, " \t")
	rest, ok := strings.CutPrefix(r.rest, token)
	if ok {
		r.rest = rest
	}
	return ok
}

func (r *selectorReader) or() bool {
	value := r.and()
	for r.is("||") {
		next := r.and()
		value = value || next
	}
	return value
}

func (r *selectorReader) and() bool {
	value := r.unary()
	for r.is("&&") {
		next := r.unary()
		value = value && next
	}
	return value
}

func (r *selectorReader) unary() bool {
	switch {
	case r.is("!"):
		return !r.unary()
	case r.is("("):
		value := r.or()
		r.is(")")
		return value
	case r.is("all()"):
		return r.all
	case r.is("has("):
		_, there := r.labels[r.label()]
		r.is(")")
		return there
	}
	return r.comparison()
}

func (r *selectorReader) comparison() bool {
	value, there := r.labels[r.label()]
	switch {
	case r.is("=="):
		return r.quoted() == value && there
	case r.is("!="):
		return r.quoted() != value || !there
	case r.is("contains"):
		return strings.Contains(value, r.quoted()) && there
	case r.is("starts with"):
		return strings.HasPrefix(value, r.quoted()) && there
	case r.is("ends with"):
		return strings.HasSuffix(value, r.quoted()) && there
	case r.is("not in"), r.is("notin"):
		return !r.set()[value] || !there
	case r.is("in"):
		return r.set()[value] && there
	}
	return false
}

// label reads the name of a label.
func (r *selectorReader) label() string {
	r.rest = strings.TrimLeft(r.rest, " \t")
	end := strings.IndexFunc(r.rest, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("_./-", c))
	})
	if end < 0 {
		end = len(r.rest)
	}
	name := r.rest[:end]
	r.rest = r.rest[end:]
	return name
}

// quoted reads a value between quotes of one kind.
func (r *selectorReader) quoted() string {
	quote := "'"
	if !r.is(quote) {
		quote = `"`
		r.is(quote)
	}
	value, rest, _ := strings.Cut(r.rest, quote)
	r.rest = rest
	return value
}

// set reads values between braces.
func (r *selectorReader) set() map[string]bool {
	values := map[string]bool{}
	r.is("{")
	for !r.is("}") && r.rest != "" {
		values[r.quoted()] = true
		r.is(",")
	}
	return values
}
