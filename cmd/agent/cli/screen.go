package cli

import (
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// screen is the output of a command with its properties. Writes pass through unchanged.
type screen struct {
	io.Writer
	width    int // columns; 0: it is no terminal, lines may have any length
	color    bool
	terminal bool
}

// newScreen looks at w. Colours are for terminals, unless the user says otherwise; NO_COLOR counts when nothing is said.
func newScreen(w io.Writer, color string) *screen {
	s := &screen{Writer: w}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		s.terminal = true
		if width, _, err := term.GetSize(int(f.Fd())); err == nil {
			s.width = width
		}
	}
	s.color = color == "always" || color == "auto" && s.terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return s
}

// screenOf returns w as a screen; a plain writer has no known properties.
func screenOf(w io.Writer) *screen {
	if s, ok := w.(*screen); ok {
		return s
	}
	return &screen{Writer: w}
}

const (
	bold   = "\x1b[1m"
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	plain  = "\x1b[0m"
)

// colors are what words mean to the reader. They are looked for at the beginning of a text, the first ones first.
var colors = []struct {
	color string
	words []string
}{
	{yellow, []string{"warning", "rules left out", "stale", "staged", "absent", "lint", "mixed", "keeps its last policy", "ready, with"}},
	{green, []string{"ok", "allow", "Allow", "ready", "current", "synced", "open", "all is well"}},
	{red, []string{"deny", "Deny", "PROBLEM", "rejected", "not ready", "not running", "closed:", "revoked", "failing", "no program"}},
}

// code is the colour of a text, by the word it begins with; empty: it has none, or the screen has no colours.
func (s *screen) code(text string) string {
	if !s.color {
		return ""
	}
	for _, c := range colors {
		for _, word := range c.words {
			rest, ok := strings.CutPrefix(text, word)
			if ok && (rest == "" || strings.ContainsRune(" :,;", rune(rest[0])) || strings.HasSuffix(word, ":")) {
				return c.color
			}
		}
	}
	return ""
}

// paint colours a text by the word it begins with, if the screen has colours.
func (s *screen) paint(text string) string { return colored(s.code(text), text) }

func colored(code, text string) string {
	if code == "" {
		return text
	}
	return code + text + plain
}

// word colours the word that a text begins with, if it is one that has a colour, and leaves the rest plain.
func (s *screen) word(text string) string {
	word := strings.TrimRight(text, " ")
	if i := strings.IndexByte(word, ':'); i >= 0 {
		word = word[:i]
	} else if i := strings.IndexByte(word, ' '); i >= 0 {
		word = word[:i]
	}
	return s.paint(word) + text[len(word):]
}

// alarm paints text about something that is wrong.
func (s *screen) alarm(text string) string {
	if !s.color {
		return text
	}
	return red + text + plain
}

// heading is the code of headings; empty: the screen has no colours.
func (s *screen) heading() string {
	if !s.color {
		return ""
	}
	return bold
}
