package selector

import "testing"

func TestMatches(t *testing.T) {
	labels := Map{"a": "red-blue", "empty": "", "n": "5"}
	tests := []struct {
		text string
		want bool
	}{
		{"", true},
		{"all()", true},
		{"!all()", false},

		{"has(a)", true},
		{"has(empty)", true},
		{"has(missing)", false},
		{"!has(missing)", true},

		{"a == 'red-blue'", true},
		{"a == 'red'", false},
		{"empty == ''", true},
		{"missing == ''", false},
		{"a == 'RED-BLUE'", false},

		{"a != 'red'", true},
		{"a != 'red-blue'", false},
		{"missing != 'red'", true},
		{"missing != ''", true},

		{"a in {'x', 'red-blue'}", true},
		{"a in {'x'}", false},
		{"missing in {''}", false},
		{"a in {}", false},
		{"missing in {}", false},

		{"a not in {'x'}", true},
		{"a not in {'x', 'red-blue'}", false},
		{"missing not in {'x'}", true},
		{"a not in {}", true},
		{"missing not in {}", true},

		{"a contains 'd-b'", true},
		{"a contains ''", true},
		{"a contains 'green'", false},
		{"missing contains ''", false},
		{"a starts with 'red'", true},
		{"a starts with 'blue'", false},
		{"missing starts with ''", false},
		{"a ends with 'blue'", true},
		{"a ends with 'red'", false},
		{"missing ends with ''", false},

		{"!(missing == 'x')", true},
		{"!(missing != 'x')", false},
		{"!(missing contains '')", true},

		{"has(a) && n == '5'", true},
		{"has(a) && n == '6'", false},
		{"has(missing) || n == '5'", true},
		{"has(missing) || n == '6'", false},
		{"has(a) || has(missing) && has(missing)", true},
		{"(has(a) || has(missing)) && has(missing)", false},
		{"!has(missing) && has(a)", true},
		{"!(has(a) && has(missing))", true},
	}
	for _, tt := range tests {
		t.Run(tt.text, func(t *testing.T) {
			if got := mustParse(t, tt.text).Matches(labels); got != tt.want {
				t.Errorf("%s matches %v: %v, want %v", tt.text, labels, got, tt.want)
			}
		})
	}
}

func TestMatchesGlobalWithoutNamespace(t *testing.T) {
	s := mustParse(t, "global()")
	if !s.Matches(Map{"a": "b"}) {
		t.Error("global() does not match labels without a namespace")
	}
	if s.Matches(Map{NamespaceLabel: "shop"}) {
		t.Error("global() matches a namespaced object")
	}
}

func TestMatchesNilMapAndZeroSelector(t *testing.T) {
	if mustParse(t, "has(a)").Matches(Map(nil)) {
		t.Error("has(a) matches no labels")
	}
	var zero Selector
	if !zero.Matches(Map{}) || !zero.IsAll() || zero.String() != "all()" || !zero.Equal(All()) {
		t.Error("the zero Selector is not all()")
	}
}

const benchmarkText = `app == "db" && tier in {"a", "b", "c"} && !has(old) && (zone != "x" || name starts with "pg-")`

var benchmarkLabels = Map{"app": "db", "tier": "c", "zone": "x", "name": "pg-0", "projectcalico.org/namespace": "shop"}

func TestMatchesDoesNotAllocate(t *testing.T) {
	s := mustParse(t, benchmarkText)
	matched := false
	if n := testing.AllocsPerRun(100, func() { matched = s.Matches(benchmarkLabels) }); n != 0 {
		t.Errorf("Matches allocates %v times", n)
	}
	if !matched {
		t.Error("the selector was meant to match")
	}
}

func BenchmarkMatches(b *testing.B) {
	s := mustParse(b, benchmarkText)
	b.ReportAllocs()
	for b.Loop() {
		s.Matches(benchmarkLabels)
	}
}

func BenchmarkParse(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		mustParse(b, benchmarkText)
	}
}
