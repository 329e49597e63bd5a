package selector

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Limits of selectors. The newest API enforces the first, the grammar the second. The others bound what a selector of ParseLong costs.
const (
	MaxLength      = 1024     // characters of a selector, for Parse
	MaxLabelLength = 512      // characters of a label name
	MaxLongLength  = 64 << 10 // bytes of a selector, for ParseLong
	MaxLongDepth   = 100      // of '(' and '!' within each other, in a selector longer than MaxLength
)

// SyntaxError says where a selector's text is wrong.
type SyntaxError struct {
	Position int    // of the first byte that does not fit, counted from 1
	Expected string // what could have stood there
	Found    string // what stands there, shortened; empty at the end of the text
}

func (e *SyntaxError) Error() string {
	if e.Found == "" {
		return fmt.Sprintf("position %d: expected %s, found the end of the selector", e.Position, e.Expected)
	}
	return fmt.Sprintf("position %d: expected %s, found %q", e.Position, e.Expected, e.Found)
}

const (
	expectPredicate = "a label, has(label), all(), '!' or '('"
	expectOperator  = "an operator (==, !=, in, not in, contains, starts with, ends with)"
	expectValue     = "a value in quotes"
	expectEnd       = "'&&', '||' or the end of the selector"
)

// Parse parses a selector. Text of nothing but spaces and tabs is all(). global() is accepted as the whole text only;
// a caller for whom it has no meaning must ask IsGlobal. An error of the syntax is a *SyntaxError, which does not
// repeat the text.
func Parse(text string) (*Selector, error) {
	if n := utf8.RuneCountInString(text); n > MaxLength {
		return nil, fmt.Errorf("%d characters long, the limit is %d", n, MaxLength)
	}
	return parse(text, MaxLength)
}

// ParseLong is Parse for a selector that was written where no limit of MaxLength is in force. Every text that Parse accepts means the
// same to both. A longer one has at most MaxLongLength bytes and nests at most MaxLongDepth deep.
func ParseLong(text string) (*Selector, error) {
	if n := len(text); n > MaxLongLength {
		return nil, fmt.Errorf("%d bytes long, the limit is %d", n, MaxLongLength)
	}
	depth := MaxLength
	if utf8.RuneCountInString(text) > MaxLength {
		depth = MaxLongDepth
	}
	return parse(text, depth)
}

func parse(text string, depth int) (*Selector, error) {
	p := parser{text: text, deeper: depth}
	p.skipSpace()
	if p.atEnd() {
		return All(), nil
	}
	root, err := p.or()
	if err != nil {
		return nil, err
	}
	if !p.atEnd() {
		return nil, p.unexpected(expectEnd)
	}
	return newSelector(root), nil
}

// parser is a recursive descent over the text. Every method that consumes a token consumes the space after it too.
type parser struct {
	text   string
	pos    int
	deeper int // how many more '(' and '!' may be within each other: the bound of the recursion
}

func (p *parser) or() (node, error)  { return p.chain("||", p.and, joinOr) }
func (p *parser) and() (node, error) { return p.chain("&&", p.unary, joinAnd) }

// chain parses one or more terms with the operator between them.
func (p *parser) chain(operator string, term func() (node, error), join func([]node) node) (node, error) {
	var terms []node
	for {
		t, err := term()
		if err != nil {
			return nil, err
		}
		terms = append(terms, t)
		if !p.accept(operator) {
			return join(terms), nil
		}
	}
}

func (p *parser) unary() (node, error) {
	if p.at("!") || p.at("(") {
		if p.deeper == 0 {
			return nil, p.unexpected(fmt.Sprintf("at most %d '(' and '!' within each other", MaxLongDepth))
		}
		p.deeper--
		defer func() { p.deeper++ }()
	}
	switch {
	case p.accept("!"):
		n, err := p.unary()
		if err != nil {
			return nil, err
		}
		return negate(n), nil
	case p.accept("("):
		n, err := p.or()
		if err != nil {
			return nil, err
		}
		if !p.accept(")") {
			return nil, p.unexpected("'&&', '||' or ')'")
		}
		return n, nil
	}
	return p.predicate()
}

func (p *parser) predicate() (node, error) {
	start := p.pos
	switch {
	case p.accept("all("):
		return allNode{}, p.expect(")")
	case p.accept("global("):
		if err := p.expect(")"); err != nil {
			return nil, err
		}
		if strings.Trim(p.text[:start], " \t") != "" || !p.atEnd() {
			p.pos = start
			return nil, p.unexpected("global() to stand alone")
		}
		return globalNode{}, nil
	case p.accept("has("):
		label, err := p.label("a label")
		if err != nil {
			return nil, err
		}
		return hasNode{label}, p.expect(")")
	}
	label, err := p.label(expectPredicate)
	if err != nil {
		return nil, err
	}
	return p.comparison(label)
}

// comparison parses the operator and operands after a label.
func (p *parser) comparison(label string) (node, error) {
	switch {
	case p.accept("=="):
		return p.compare(label, opEqual)
	case p.accept("!="):
		return p.compare(label, opNotEqual)
	case p.accept("contains"):
		return p.compare(label, opContains)
	case p.acceptBoth("starts", "with"):
		return p.compare(label, opStartsWith)
	case p.acceptBoth("ends", "with"):
		return p.compare(label, opEndsWith)
	case p.accept("in"):
		return p.set(label, false)
	case p.acceptBoth("not", "in"):
		return p.set(label, true)
	}
	return nil, p.unexpected(expectOperator)
}

func (p *parser) compare(label string, op operator) (node, error) {
	v, err := p.value(expectValue)
	return compareNode{label, op, v}, err
}

func (p *parser) set(label string, not bool) (node, error) {
	if err := p.expect("{"); err != nil {
		return nil, err
	}
	var values []string
	for expected := expectValue + " or '}'"; !p.accept("}"); {
		v, err := p.value(expected)
		if err != nil {
			return nil, err
		}
		values = append(values, v)
		if !p.accept(",") && !p.at("}") {
			return nil, p.unexpected("',' or '}'")
		}
	}
	return setNode{label: label, not: not, values: canonicalSet(values)}, nil
}

func (p *parser) label(expected string) (string, error) {
	end := p.pos
	for end < len(p.text) && isLabelByte(p.text[end]) {
		end++
	}
	if end == p.pos {
		return "", p.unexpected(expected)
	}
	if end-p.pos > MaxLabelLength {
		return "", p.unexpected(fmt.Sprintf("a label of at most %d characters", MaxLabelLength))
	}
	label := p.text[p.pos:end]
	p.pos = end
	p.skipSpace()
	return label, nil
}

func (p *parser) value(expected string) (string, error) {
	if !p.at(`"`) && !p.at("'") {
		return "", p.unexpected(expected)
	}
	quote := p.text[p.pos]
	n := strings.IndexByte(p.text[p.pos+1:], quote)
	if n < 0 {
		p.pos = len(p.text)
		return "", p.unexpected("a closing " + string(quote))
	}
	v := p.text[p.pos+1 : p.pos+1+n]
	p.pos += n + 2
	p.skipSpace()
	return v, nil
}

func (p *parser) atEnd() bool { return p.pos == len(p.text) }

func (p *parser) at(token string) bool { return strings.HasPrefix(p.text[p.pos:], token) }

// accept consumes the token if it is next.
func (p *parser) accept(token string) bool {
	if !p.at(token) {
		return false
	}
	p.pos += len(token)
	p.skipSpace()
	return true
}

// acceptBoth consumes two tokens if both are next.
func (p *parser) acceptBoth(first, second string) bool {
	start := p.pos
	if p.accept(first) && p.accept(second) {
		return true
	}
	p.pos = start
	return false
}

func (p *parser) expect(token string) error {
	if !p.accept(token) {
		return p.unexpected("'" + token + "'")
	}
	return nil
}

func (p *parser) skipSpace() {
	for p.pos < len(p.text) && (p.text[p.pos] == ' ' || p.text[p.pos] == '\t') {
		p.pos++
	}
}

// unexpected reports what stands at the current position.
func (p *parser) unexpected(expected string) error {
	const shown = 20 // bytes of the text, which may be hostile
	return &SyntaxError{
		Position: p.pos + 1,
		Expected: expected,
		Found:    p.text[p.pos:min(p.pos+shown, len(p.text))],
	}
}
