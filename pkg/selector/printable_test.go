package selector

import "testing"

func TestPrintableSteersNoTerminal(t *testing.T) {
	for text, want := range map[string]string{
		"":                     "",
		`app == "größe"`:       `app == "größe"`,
		"a\nb\tc\r":            `a\nb\tc\r`,
		"\x1b[2J\u009b1m\x7f":  `\x1b[2J\u009b1m\x7f`,
		"a\u202eb\u2028\u00a0": `a\u202eb\u2028\u00a0`,
		"it's \\ \"this\"":     `it's \ "this"`,
		"bad \xff":             "bad \ufffd",
	} {
		if got := Printable(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
