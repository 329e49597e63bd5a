package selector

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestConstructorsPrint(t *testing.T) {
	parse := func(text string) *Selector { return mustParse(t, text) }
	tests := []struct {
		name string
		s    *Selector
		want string
	}{
		{"all", All(), `all()`},
		{"has", Has("a"), `has(a)`},
		{"equal", Equal("a", "b"), `a == "b"`},
		{"not equal", NotEqual("a", "b"), `a != "b"`},
		{"in", In("a", "c", "b", "c"), `a in {"b", "c"}`},
		{"in nothing", In("a"), `a in {}`},
		{"not in", NotIn("a", "b"), `a not in {"b"}`},
		{"and of none", And(), `all()`},
		{"and of one", And(Has("a")), `has(a)`},
		{"and drops all and nil", And(All(), Has("a"), nil, All()), `has(a)`},
		{"and of all", And(All(), All()), `all()`},
		{"and flattens", And(parse("has(a) && has(b)"), parse("has(c)")), `has(a) && has(b) && has(c)`},
		{"and drops all inside", And(parse("all() && has(b)"), Has("c")), `has(b) && has(c)`},
		{"and keeps all under or", And(parse("all() || has(b)"), Has("c")), `(all() || has(b)) && has(c)`},
		{"and writes global out", And(parse("global()"), Has("a")), `!has(projectcalico.org/namespace) && has(a)`},
		{"not", Not(Has("a")), `!has(a)`},
		{"not of not", Not(Not(Has("a"))), `has(a)`},
		{"not of or", Not(parse("has(a) || has(b)")), `!(has(a) || has(b))`},
		{"not of global", Not(parse("global()")), `has(projectcalico.org/namespace)`},
		{"value with both quotes", Equal("a", `"'`), `a == <2227>`},
		{"impossible label", Has("a b"), `has(<612062>)`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.s.String(); got != tt.want {
				t.Errorf("prints %s, want %s", got, tt.want)
			}
		})
	}
}

func TestAndDoesNotChangeItsParts(t *testing.T) {
	a := mustParse(t, "all() && has(a) && has(b)")
	And(a, Has("c"))
	And(a, Has("d"))
	if got, want := a.String(), "all() && has(a) && has(b)"; got != want || !a.Matches(Map{"a": "", "b": ""}) {
		t.Errorf("a part became %s", got)
	}
}

func TestIsAllAndIsGlobal(t *testing.T) {
	tests := []struct {
		text        string
		all, global bool
	}{
		{"", true, false},
		{"(all())", true, false},
		{"all() && all()", false, false},
		{"global()", false, true},
		{"a == 'all()'", false, false},
	}
	for _, tt := range tests {
		s := mustParse(t, tt.text)
		if s.IsAll() != tt.all || s.IsGlobal() != tt.global {
			t.Errorf("%q: IsAll %v, IsGlobal %v; want %v, %v", tt.text, s.IsAll(), s.IsGlobal(), tt.all, tt.global)
		}
	}
}

func TestEqualComparesText(t *testing.T) {
	a, b := mustParse(t, "x in {'2','1'}"), In("x", "1", "2")
	if !a.Equal(b) || a.Equal(Has("x")) || a.Equal(nil) {
		t.Error("Equal does not follow the text")
	}
	if diff := cmp.Diff([]*Selector{a, nil}, []*Selector{b, nil}); diff != "" {
		t.Errorf("go-cmp finds a difference: %s", diff)
	}
}

func TestPrefixed(t *testing.T) {
	tests := []struct{ text, want string }{
		{"all()", "all()"},
		{"global()", "global()"},
		{"has(a) && !(b == 'has(b)') || c in {'c'}", `has(pcns.a) && !(pcns.b == "has(b)") || pcns.c in {"c"}`},
		{"d contains 'd' || all()", `pcns.d contains "d" || all()`},
	}
	for _, tt := range tests {
		s := mustParse(t, tt.text)
		before := s.String()
		if got := s.Prefixed("pcns.").String(); got != tt.want {
			t.Errorf("%s prefixed: %s, want %s", tt.text, got, tt.want)
		}
		if s.String() != before {
			t.Errorf("Prefixed changed %s to %s", before, s)
		}
	}
}

func TestReplaceAll(t *testing.T) {
	tests := []struct{ text, with, want string }{
		{"all()", "has(ns)", "has(ns)"},
		{"", "has(ns)", "has(ns)"},
		{"has(a)", "has(ns)", "has(a)"},
		{"global()", "has(ns)", "global()"},
		{"a == 'all()'", "has(ns)", `a == "all()"`},
		{"!all()", "has(ns)", "!has(ns)"},
		{"!all()", "!has(ns)", "has(ns)"},
		{"all() && a == 'b'", "has(ns)", `has(ns) && a == "b"`},
		{"all() && a == 'b'", "has(x) && has(y)", `has(x) && has(y) && a == "b"`},
		{"all() && a == 'b'", "has(x) || has(y)", `(has(x) || has(y)) && a == "b"`},
		{"all() || a == 'b'", "global()", `!has(projectcalico.org/namespace) || a == "b"`},
	}
	for _, tt := range tests {
		if got := mustParse(t, tt.text).ReplaceAll(mustParse(t, tt.with)).String(); got != tt.want {
			t.Errorf("%s with %s for all(): %s, want %s", tt.text, tt.with, got, tt.want)
		}
	}
}
