package ruleset

import (
	"fmt"
	"strings"
)

// Option is one option with its values in canonical form; values.go has the forms.
type Option struct {
	Name    string
	Negated bool
	Values  []string
}

// Part is a match or a target with its options in the order of the text.
type Part struct {
	Name    string
	Options []Option
}

// Option returns the option of that name.
func (p Part) Option(name string) (Option, bool) {
	for _, o := range p.Options {
		if o.Name == name {
			return o, true
		}
	}
	return Option{}, false
}

// Rule is a parsed rule. Basic has the options that need no match: -s, -d, -i, -o, -p, in this order.
type Rule struct {
	Basic   Part
	Matches []Part
	Target  Part // its Name is empty if the rule has none
	Goto    bool
}

// UnknownError is the error for a rule with a match, a target, an option or a value that this package does not know.
type UnknownError struct{ Rule, What string }

func (e *UnknownError) Error() string { return fmt.Sprintf("rule %q: %s", e.Rule, e.What) }

// ParseRule parses a rule. Texts with the same meaning have the same result. The error is an *UnknownError.
func ParseRule(text string) (Rule, error) {
	words, err := Words(text)
	if err != nil {
		return Rule{}, &UnknownError{text, err.Error()}
	}
	p := parser{words: words}
	for len(p.words) > 0 {
		if err := p.next(); err != nil {
			return Rule{}, &UnknownError{text, err.Error()}
		}
	}
	return p.finish(), nil
}

// Canonical returns the canonical text of a rule, which is the same for all texts of the rule. If ParseRule refuses the rule, it
// returns its words with single blanks between them.
func Canonical(text string) string {
	rule, err := ParseRule(text)
	if err == nil {
		return rule.String()
	}
	words, err := Words(text)
	if err != nil {
		return text
	}
	var b strings.Builder
	for _, word := range words {
		appendWord(&b, Quote(word))
	}
	return b.String()
}

// String returns the canonical text.
func (r Rule) String() string {
	var b strings.Builder
	b.Grow(96)
	r.Basic.write(&b)
	for _, m := range r.Matches {
		appendWord(&b, "-m")
		appendWord(&b, m.Name)
		m.write(&b)
	}
	if r.Target.Name != "" {
		if r.Goto {
			appendWord(&b, "-g")
		} else {
			appendWord(&b, "-j")
		}
		appendWord(&b, r.Target.Name)
		r.Target.write(&b)
	}
	return b.String()
}

func (p Part) write(b *strings.Builder) {
	for _, o := range p.Options {
		if o.Negated {
			appendWord(b, "!")
		}
		appendWord(b, o.Name)
		for _, v := range o.Values {
			appendWord(b, Quote(v))
		}
	}
}

func appendWord(b *strings.Builder, word string) {
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
	b.WriteString(word)
}

// parser reads the words of one rule from left to right.
type parser struct {
	words  []string
	rule   Rule
	number string // of the protocol that -p has named and not negated
}

// next reads one option with its values, or one -m, -j or -g.
func (p *parser) next() error {
	word := p.word()
	negated := word == "!"
	if negated {
		word = p.word()
	}
	switch word {
	case "-m", "--match":
		name := p.word()
		if _, known := matches[name]; !known || negated {
			return fmt.Errorf("unknown match %q", name)
		}
		p.rule.Matches = append(p.rule.Matches, Part{Name: name})
		return nil
	case "-j", "--jump", "-g", "--goto":
		if p.rule.Target.Name != "" || negated || len(p.words) == 0 {
			return fmt.Errorf("%q is not possible here", word)
		}
		p.rule.Target.Name, p.rule.Goto = p.word(), word == "-g" || word == "--goto"
		return nil
	}
	part, kind, err := p.owner(word)
	if err != nil {
		return err
	}
	if len(p.words) < kind.words {
		return fmt.Errorf("option %s lacks a value", word)
	}
	option, err := kind.read(p.words[:kind.words], negated)
	if err != nil {
		return fmt.Errorf("option %s: %w", word, err)
	}
	p.words = p.words[kind.words:]
	if option.Name == "-p" && !negated {
		p.number = option.Values[0]
	}
	if option.Name != "" {
		part.Options = append(part.Options, option)
	}
	return nil
}

func (p *parser) word() string {
	if len(p.words) == 0 {
		return ""
	}
	word := p.words[0]
	p.words = p.words[1:]
	return word
}

// owner finds the part that an option belongs to: the target, the latest match that has it, the match of the protocol, or the rule.
func (p *parser) owner(option string) (*Part, optionKind, error) {
	if p.rule.Target.Name != "" && !p.rule.Goto {
		if kind, ok := targets[p.rule.Target.Name][option]; ok {
			return &p.rule.Target, kind, nil
		}
	}
	for i := len(p.rule.Matches) - 1; i >= 0; i-- {
		if kind, ok := matches[p.rule.Matches[i].Name][option]; ok {
			return &p.rule.Matches[i], kind, nil
		}
	}
	if kind, ok := basic[option]; ok {
		return &p.rule.Basic, kind, nil
	}
	if name := protocolMatches[p.number]; name != "" {
		if kind, ok := matches[name][option]; ok {
			p.rule.Matches = append(p.rule.Matches, Part{Name: name})
			return &p.rule.Matches[len(p.rule.Matches)-1], kind, nil
		}
	}
	return nil, optionKind{}, fmt.Errorf("unknown option %q", option)
}
