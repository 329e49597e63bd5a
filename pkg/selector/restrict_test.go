package selector

import (
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
	if r := Not(mustParse(t, "global()")).Restrictions(); !cmp.Equal(r, restrictions{NamespaceLabel: present}) {
		t.Errorf("restrictions of not global: %v", r)
	}
}
