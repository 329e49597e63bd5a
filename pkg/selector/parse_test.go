package selector

import (
	"errors"
	"strings"
	"testing"
)

func TestParsePrintsCanonicalText(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"empty is all", "", `all()`},
		{"blank is all", " \t ", `all()`},
		{"all", "all( )", `all()`},
		{"global", " global() ", `global()`},
		{"has", "has( a.b/c_d-E )", `has(a.b/c_d-E)`},
		{"equal without spaces", "a=='b'", `a == "b"`},
		{"not equal", "a!=\t\"b\"", `a != "b"`},
		{"value with a double quote", `a == 'x"y'`, `a == 'x"y'`},
		{"value with a single quote", `a == "x'y"`, `a == "x'y"`},
		{"value with operators in it", `a == "all() && (b)"`, `a == "all() && (b)"`},
		{"empty value", `a == ''`, `a == ""`},
		{"contains", "a contains'b'", `a contains "b"`},
		{"starts with", "a starts  with 'b'", `a starts with "b"`},
		{"starts with in one word", "a startswith 'b'", `a starts with "b"`},
		{"ends with", "a ends\twith 'b'", `a ends with "b"`},
		{"set sorted without duplicates", "a in{'c','b','c'}", `a in {"b", "c"}`},
		{"set with trailing comma", "a in {'c','b',}", `a in {"b", "c"}`},
		{"empty set", "a in { }", `a in {}`},
		{"not in", "a not in {'b'}", `a not in {"b"}`},
		{"notin", "a notin {'b'}", `a not in {"b"}`},
		{"keywords are labels too", "has == 'x' && in in {'y'} && not notin {'z'} && all != 'w' && global == ''",
			`has == "x" && in in {"y"} && not not in {"z"} && all != "w" && global == ""`},
		{"and binds tighter than or", "has(a) || has(b) && has(c)", `has(a) || has(b) && has(c)`},
		{"needless parentheses go", "(has(a) || ((has(b)) && (has(c))))", `has(a) || has(b) && has(c)`},
		{"needed parentheses stay", "(has(a) || has(b)) && has(c)", `(has(a) || has(b)) && has(c)`},
		{"chains are flat", "has(a) && (has(b) && (has(c) && has(d)))", `has(a) && has(b) && has(c) && has(d)`},
		{"not binds tightest", "!has(a) && has(b)", `!has(a) && has(b)`},
		{"not of a group", "!(has(a) && has(b))", `!(has(a) && has(b))`},
		{"not of a comparison", "!a == 'b'", `!(a == "b")`},
		{"not of a set", "! a in {'b'}", `!(a in {"b"})`},
		{"double negation cancels out", "!!!has(a)", `!has(a)`},
		{"all as a part stays", "all() && !all()", `all() && !all()`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := mustParse(t, tt.text).String(); got != tt.want {
				t.Errorf("Parse(%q) prints %s, want %s", tt.text, got, tt.want)
			}
		})
	}
}

func TestParseErrorNamesPositionAndExpectation(t *testing.T) {
	tests := []struct {
		name, text string
		position   int
		expected   string
	}{
		{"single equals", "a = 'b'", 3, expectOperator},
		{"label alone", "a", 2, expectOperator},
		{"half an operator is not consumed", "a starts in {'b'}", 3, expectOperator},
		{"not without in", "a not 'b'", 3, expectOperator},
		{"value without quotes", "a == b", 6, expectValue},
		{"value missing", "a ==", 5, expectValue},
		{"quote not closed", `a == "b`, 8, `a closing "`},
		{"quotes do not mix", `a == "b'`, 9, `a closing "`},
		{"operator missing between terms", "has(a) has(b)", 8, expectEnd},
		{"ampersand alone", "has(a) & has(b)", 8, expectEnd},
		{"operand missing", "has(a) && ", 11, expectPredicate},
		{"operand missing before", "|| has(a)", 1, expectPredicate},
		{"not of nothing", "!", 2, expectPredicate},
		{"not with a space before equals", "a ! = 'b'", 3, expectOperator},
		{"group not closed", "(has(a)", 8, "'&&', '||' or ')'"},
		{"group empty", "()", 2, expectPredicate},
		{"too many closing", "has(a))", 7, expectEnd},
		{"has with a space before the parenthesis", "has (a)", 5, expectOperator},
		{"has of nothing", "has()", 5, "a label"},
		{"has of two", "has(a b)", 7, "')'"},
		{"all of something", "all(a)", 5, "')'"},
		{"set not opened", "a in 'b'", 6, "'{'"},
		{"set not closed", "a in {'b'", 10, "',' or '}'"},
		{"set without comma", "a in {'b' 'c'}", 11, "',' or '}'"},
		{"set of a comma", "a in {,}", 7, expectValue + " or '}'"},
		{"line feed is no space", "a ==\n'b'", 5, expectValue},
		{"other letters in a label", "é == 'b'", 1, expectPredicate},
		{"global before another term", "global() && has(a)", 1, "global() to stand alone"},
		{"global after another term", "has(a) || global()", 11, "global() to stand alone"},
		{"global negated", "!global()", 2, "global() to stand alone"},
		{"global in parentheses", "(global())", 2, "global() to stand alone"},
		{"label too long", strings.Repeat("a", 513) + " == ''", 1, "a label of at most 512 characters"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse(tt.text)
			var syntax *SyntaxError
			if !errors.As(err, &syntax) {
				t.Fatalf("Parse(%q) = %v, want a syntax error", tt.text, err)
			}
			if syntax.Position != tt.position || syntax.Expected != tt.expected {
				t.Errorf("Parse(%q): %v\nwant position %d: expected %s", tt.text, err, tt.position, tt.expected)
			}
		})
	}
}

func TestSyntaxErrorText(t *testing.T) {
	_, err := Parse("a == b and c == d and e == f")
	if got, want := err.Error(), `position 6: expected a value in quotes, found "b and c == d and e ="`; got != want {
		t.Errorf("error %s, want %s", got, want)
	}
	_, err = Parse("(all()")
	if got, want := err.Error(), `position 7: expected '&&', '||' or ')', found the end of the selector`; got != want {
		t.Errorf("error %s, want %s", got, want)
	}
}

func TestParseLimits(t *testing.T) {
	label := strings.Repeat("l", MaxLabelLength)
	if _, err := Parse("has(" + label + ")"); err != nil {
		t.Errorf("label of %d characters: %v", len(label), err)
	}
	// The limit counts characters, as the API does, not bytes.
	frame := len("a == ''")
	if _, err := Parse("a == '" + strings.Repeat("é", MaxLength-frame) + "'"); err != nil {
		t.Errorf("selector of %d characters: %v", MaxLength, err)
	}
	if _, err := Parse("a == '" + strings.Repeat("x", MaxLength-frame+1) + "'"); err == nil {
		t.Errorf("selector of %d characters was accepted", MaxLength+1)
	}
	if _, err := Parse(strings.Repeat("(", 500) + "all()" + strings.Repeat(")", 500)); err != nil {
		t.Errorf("500 nested parentheses: %v", err)
	}
	if _, err := Parse(strings.Repeat("!", MaxLength-5) + "all()"); err != nil {
		t.Errorf("a thousand negations: %v", err)
	}
}

func mustParse(t testing.TB, text string) *Selector {
	t.Helper()
	s, err := Parse(text)
	if err != nil {
		t.Fatalf("Parse(%q): %v", text, err)
	}
	return s
}

// A text that no API has limited costs no more than in proportion to its length, which is bounded.
func TestParseLongLimits(t *testing.T) {
	values := func(n int) string { return "a in {" + strings.Repeat("'abcdefghij',", n) + "}" }
	for name, text := range map[string]string{
		"3,000 bytes":                   values(230),
		"the longest":                   "a == '" + strings.Repeat("x", MaxLongLength-len("a == ''")) + "'",
		"deep and long":                 strings.Repeat("(", MaxLongDepth) + values(200) + strings.Repeat(")", MaxLongDepth),
		"many, none within the other":   strings.Repeat("!has(a) && (has(b)) && ", 1000) + "all()",
		"what Parse accepts":            strings.Repeat("!", MaxLength-5) + "all()",
		"parentheses that Parse closes": strings.Repeat("(", 500) + "all()" + strings.Repeat(")", 500),
	} {
		if _, err := ParseLong(text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, test := range map[string]struct{ text, want string }{
		"too long": {"a == '" + strings.Repeat("é", MaxLongLength/2) + "'", "65543 bytes long, the limit is 65536"},
		"too deep": {strings.Repeat("(", 10_000) + "all()" + strings.Repeat(")", 10_000),
			"position 101: expected at most 100 '(' and '!' within each other, found \"((((((((((((((((((((\""},
		"negations":  {strings.Repeat("!", 10_000) + "all()", "position 101: expected at most 100"},
		"both kinds": {strings.Repeat("!(", 5_000) + "all()" + strings.Repeat(")", 5_000), "position 101: expected at most 100"},
	} {
		if _, err := ParseLong(test.text); err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
}
