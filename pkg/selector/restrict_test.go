package selector

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRestrictions(t *testing.T) {
	type restrictions = map[string]Restriction
	present := Restriction{}
	one := func(values ...string) Restriction { return Restriction{Values: append([]string{}, values...)} }
	tests := []struct {
		text string
		want restrictions
	}{
		{"all()", restrictions{}},
		{"!all()", restrictions{}},
		{"global()", restrictions{}},
		{"has(a)", restrictions{"a": present}},
		{"!has(a)", restrictions{}},
		{"a == 'x'", restrictions{"a": one("x")}},
		{"a != 'x'", restrictions{}},
		{"!(a != 'x')", restrictions{"a": one("x")}},
		{"a in {'y', 'x'}", restrictions{"a": one("x", "y")}},
		{"a not in {'x'}", restrictions{}},
		{"!(a not in {'x'})", restrictions{"a": one("x")}},
		{"a in {}", restrictions{"a": one()}},
		{"a contains 'x'", restrictions{"a": present}},
		{"!(a contains 'x')", restrictions{}},
		{"a == 'x' && has(b) && c != 'z'", restrictions{"a": one("x"), "b": present}},
		{"has(a) && a == 'x'", restrictions{"a": one("x")}},
		{"a in {'x', 'y'} && a in {'y', 'z'}", restrictions{"a": one("y")}},
		{"a == 'x' && has(a)", restrictions{"a": one("x")}},
		{"a == 'x' && a == 'y'", restrictions{"a": one()}},
		{"a == 'x' || a == 'y'", restrictions{"a": one("x", "y")}},
		{"a == 'x' || has(a)", restrictions{"a": present}},
		{"a == 'x' || b == 'x'", restrictions{}},
		{"a == 'x' && b == 'x' || b == 'y'", restrictions{"b": one("x", "y")}},
		{"a in {} || b == 'y'", restrictions{"b": one("y")}},
		{"b == 'y' || !all()", restrictions{"b": one("y")}},
		{"a == 'x' && a == 'y' || b == 'y'", restrictions{"b": one("y")}},
		{"!(a != 'x' || b != 'y')", restrictions{"a": one("x"), "b": one("y")}},
		{"!(a != 'x' && a != 'y')", restrictions{"a": one("x", "y")}},
		{"(a == 'x' || a == 'y') && (a == 'y' || a == 'z')", restrictions{"a": one("y")}},
	}
	for _, tt := range tests {
		t.Run(tt.text, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, mustParse(t, tt.text).Restrictions()); diff != "" {
				t.Errorf("restrictions of %s (-want +got):\n%s", tt.text, diff)
			}
		})
	}
	// A union of very many values is cut, so that a long chain does not cost the square of its length.
	for n, want := range map[int]bool{maxUnited: true, maxUnited + 1: false} {
		var chain []string
		for i := range n {
			chain = append(chain, fmt.Sprintf("a == '%d'", i))
		}
		s, err := ParseLong(strings.Join(chain, " || "))
		if err != nil {
			t.Fatal(err)
		}
		if r := s.Restrictions(); len(r) != 1 || (len(r["a"].Values) == n) != want || !want && r["a"].Values != nil {
			t.Errorf("a chain of %d values: %d labels, %d values", n, len(r), len(r["a"].Values))
		}
	}
	if r := Not(mustParse(t, "global()")).Restrictions(); !cmp.Equal(r, restrictions{NamespaceLabel: present}) {
		t.Errorf("restrictions of not global: %v", r)
	}
}

// Many labels within many parentheses cost as much memory as without the parentheses, or a tenant's selector costs the square of its
// length.
func TestRestrictionsCopyNoLabelsForParentheses(t *testing.T) {
	labels := "has(l)"
	for i := range 4000 {
		labels += fmt.Sprintf(" && has(l%d)", i)
	}
	bytes := func(text string) uint64 {
		s, err := ParseLong(text)
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r := s.Restrictions()
		runtime.ReadMemStats(&after)
		if len(r) < 4000 {
			t.Fatalf("%d labels", len(r))
		}
		return after.TotalAlloc - before.TotalAlloc
	}
	flat := bytes(labels)
	for name, text := range map[string]string{
		"before": strings.Repeat("(", 90) + labels + strings.Repeat(" || !all()) && has(z)", 90),
		"behind": strings.Repeat("has(z) && (!all() || ", 90) + labels + strings.Repeat(")", 90),
	} {
		if nested := bytes(text); nested > 3*flat {
			t.Errorf("parentheses %s them: %d bytes, %d without", name, nested, flat)
		}
	}
}
