package ruleset

import (
	"errors"
	"strings"
)

var errQuote = errors.New("a quotation mark is not closed")

// Words splits a rule into its words as iptables-restore does: blanks separate them, a word in double quotes may have blanks,
// and inside quotes a backslash makes the next character an ordinary one.
func Words(rule string) ([]string, error) {
	words := make([]string, 0, 12)
	for {
		rule = strings.TrimLeft(rule, " \t")
		if rule == "" {
			return words, nil
		}
		end := strings.IndexAny(rule, " \t\"")
		switch {
		case end < 0:
			return append(words, rule), nil
		case rule[end] != '"':
			words = append(words, rule[:end])
			rule = rule[end:]
		default:
			word, rest, err := quoted(rule)
			if err != nil {
				return nil, err
			}
			words = append(words, word)
			rule = rest
		}
	}
}

// quoted reads one word that has a part in quotes, and returns what follows it.
func quoted(text string) (word, rest string, err error) {
	var b strings.Builder
	inside := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			inside = !inside
		case inside && c == '\\' && i+1 < len(text):
			i++
			b.WriteByte(text[i])
		case !inside && (c == ' ' || c == '\t'):
			return b.String(), text[i:], nil
		default:
			b.WriteByte(c)
		}
	}
	if inside {
		return "", "", errQuote
	}
	return b.String(), "", nil
}

// Quote returns word in the form in which it is one word of a rule. Texts of other origin, such as a prefix for NFLOG, need it.
func Quote(word string) string {
	plain := word != ""
	for i := 0; i < len(word) && plain; i++ {
		plain = word[i] > ' ' && word[i] != '"' && word[i] != '\'' && word[i] != '\\' && word[i] < 0x7f
	}
	if plain {
		return word
	}
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(word) {
		if c := word[i]; c == '"' || c == '\\' || c == '\'' {
			b.WriteByte('\\')
		}
		b.WriteByte(word[i])
	}
	b.WriteByte('"')
	return b.String()
}
