package selector

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Printable is a text in which every character that a terminal would not print as itself is escaped: control characters, line
// separators, characters that change the direction of writing. Authors of policies choose the values of selectors, and so could write
// lines of their own into what a tool says, or over it. Bytes that are no UTF-8 become U+FFFD.
func Printable(text string) string {
	hidden := func(c rune) bool { return !strconv.IsPrint(c) }
	if utf8.ValidString(text) && strings.IndexFunc(text, hidden) < 0 {
		return text
	}
	var b strings.Builder
	for _, c := range text {
		if hidden(c) {
			b.WriteString(strings.Trim(strconv.QuoteRune(c), "'"))
		} else {
			b.WriteRune(c)
		}
	}
	return b.String()
}
