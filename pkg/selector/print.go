package selector

import (
	"fmt"
	"strings"
)

const (
	allText    = "all()"
	globalText = "global()"
)

// precedence of an operator; higher binds tighter.
type precedence uint8

const (
	precedenceOr precedence = iota
	precedenceAnd
	precedenceNot
)

func (allNode) print(b []byte, _ precedence) []byte    { return append(b, allText...) }
func (globalNode) print(b []byte, _ precedence) []byte { return append(b, globalText...) }

func (n hasNode) print(b []byte, _ precedence) []byte {
	return append(appendLabel(append(b, "has("...), n.label), ')')
}

// print puts a comparison in parentheses after a "!": the grammar does not need them there, the reader does.
func (n compareNode) print(b []byte, outer precedence) []byte {
	return parenthesised(b, outer == precedenceNot, func(b []byte) []byte {
		b = append(appendLabel(b, n.label), ' ')
		b = append(append(b, n.op.String()...), ' ')
		return appendValue(b, n.value)
	})
}

func (n setNode) print(b []byte, outer precedence) []byte {
	return parenthesised(b, outer == precedenceNot, func(b []byte) []byte {
		b = appendLabel(b, n.label)
		if n.not {
			b = append(b, " not"...)
		}
		b = append(b, " in {"...)
		for i, v := range n.values {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = appendValue(b, v)
		}
		return append(b, '}')
	})
}

func (n notNode) print(b []byte, _ precedence) []byte {
	return n.term.print(append(b, '!'), precedenceNot)
}

func (n andNode) print(b []byte, outer precedence) []byte {
	return parenthesised(b, outer > precedenceAnd, func(b []byte) []byte {
		return appendJoined(b, n, " && ", precedenceAnd)
	})
}

func (n orNode) print(b []byte, outer precedence) []byte {
	return parenthesised(b, outer > precedenceOr, func(b []byte) []byte {
		return appendJoined(b, n, " || ", precedenceOr)
	})
}

func appendJoined(b []byte, terms []node, operator string, p precedence) []byte {
	for i, t := range terms {
		if i > 0 {
			b = append(b, operator...)
		}
		b = t.print(b, p)
	}
	return b
}

func parenthesised(b []byte, needed bool, inner func([]byte) []byte) []byte {
	if !needed {
		return inner(b)
	}
	return append(inner(append(b, '(')), ')')
}

func appendLabel(b []byte, label string) []byte {
	if !validLabel(label) {
		return fmt.Appendf(b, "<%x>", label)
	}
	return append(b, label...)
}

func appendValue(b []byte, value string) []byte {
	quote := byte('"')
	if strings.IndexByte(value, '"') >= 0 {
		quote = '\''
		if strings.IndexByte(value, '\'') >= 0 {
			return fmt.Appendf(b, "<%x>", value)
		}
	}
	return append(append(append(b, quote), value...), quote)
}
