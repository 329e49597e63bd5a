package selector

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

var (
	someLabel = rapid.SampledFrom([]string{"a", "b", "c/d", "has", "in"})
	someValue = rapid.SampledFrom([]string{"", "x", "y", "xy", `"`, "'", "all()", "é"})
	someMap   = rapid.Map(rapid.MapOfN(someLabel, someValue, 0, 5), func(m map[string]string) Map { return m })
)

// someSelector builds trees by the constructors and parses some of them in odd spellings.
func someSelector() *rapid.Generator[*Selector] {
	return rapid.Custom(func(t *rapid.T) *Selector { return drawSelector(t, 3) })
}

func drawSelector(t *rapid.T, depth int) *Selector {
	shape := rapid.IntRange(0, 11).Draw(t, "shape")
	if depth == 0 {
		shape %= 8
	}
	label, value := someLabel.Draw(t, "label"), someValue.Draw(t, "value")
	sub := func() string { return drawSelector(t, depth-1).String() }
	parse := func(text string) *Selector {
		s, err := Parse(text)
		if err != nil {
			t.Fatalf("Parse(%q): %v", text, err)
		}
		return s
	}
	switch shape {
	case 0:
		return All()
	case 1:
		return Has(label)
	case 2:
		return Equal(label, value)
	case 3:
		return NotEqual(label, value)
	case 4:
		return In(label, rapid.SliceOfN(someValue, 0, 3).Draw(t, "values")...)
	case 5:
		return NotIn(label, rapid.SliceOfN(someValue, 0, 3).Draw(t, "values")...)
	case 6:
		op := rapid.SampledFrom([]string{" contains", " starts with", "\tendswith "}).Draw(t, "operator")
		return parse(label + op + "'x'")
	case 7:
		return parse("!" + label + "==\"x\"")
	case 8:
		return Not(drawSelector(t, depth-1))
	case 9:
		return And(drawSelector(t, depth-1), drawSelector(t, depth-1))
	case 10:
		return parse("( " + sub() + ")||" + sub())
	}
	return parse(sub() + " && !(" + sub() + ")")
}

func TestPrintingThenParsingIsTheIdentity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, labels := someSelector().Draw(t, "selector"), someMap.Draw(t, "labels")
		again, err := Parse(s.String())
		if err != nil {
			t.Fatalf("Parse(%q): %v", s, err)
		}
		if again.String() != s.String() {
			t.Fatalf("%s became %s", s, again)
		}
		if s.Matches(labels) != again.Matches(labels) {
			t.Fatalf("%s and its own text disagree on %v", s, labels)
		}
	})
}

func TestConstructorsAgreeWithLogic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := someSelector().Draw(t, "a"), someSelector().Draw(t, "b")
		labels := someMap.Draw(t, "labels")
		inA, inB := a.Matches(labels), b.Matches(labels)
		if And(a, b).Matches(labels) != (inA && inB) {
			t.Fatalf("%s: wrong on %v", And(a, b), labels)
		}
		if Not(a).Matches(labels) == inA {
			t.Fatalf("%s: wrong on %v", Not(a), labels)
		}
		prefixed := Map{}
		for k, v := range labels {
			prefixed["pcns."+k] = v
		}
		if a.Prefixed("pcns.").Matches(prefixed) != inA {
			t.Fatalf("%s: wrong on %v", a.Prefixed("pcns."), prefixed)
		}
	})
}

func TestMatchingLabelsSatisfyEveryRestriction(t *testing.T) {
	matched := 0
	rapid.Check(t, func(t *rapid.T) {
		s, labels := someSelector().Draw(t, "selector"), someMap.Draw(t, "labels")
		if !s.Matches(labels) {
			return
		}
		matched++
		for label, r := range s.Restrictions() {
			v, ok := labels[label]
			if !ok || r.Values != nil && !slices.Contains(r.Values, v) {
				t.Fatalf("%s matches %v in spite of %s: %q", s, labels, label, r.Values)
			}
			if !slices.IsSorted(r.Values) {
				t.Fatalf("%s: values of %s are not sorted: %q", s, label, r.Values)
			}
		}
	})
	if matched == 0 {
		t.Error("nothing matched: the property was not tested")
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"", "all()", "global()", "has(a)", "a == 'b'", "a in {'b', \"c\",}", "a not in {}",
		"!(a contains 'x' || b starts with 'y') && c ends with \"z\"", "a == '\"'",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		s.Restrictions()
		s.Matches(Map{"a": "b"})
		canonical := s.String()
		again, err := Parse(canonical)
		if err != nil && len([]rune(canonical)) <= MaxLength {
			t.Fatalf("Parse(%q) prints %q, which does not parse: %v", text, canonical, err)
		}
		if err == nil && again.String() != canonical {
			t.Fatalf("Parse(%q) prints %q, and that prints %q", text, canonical, again)
		}
	})
}
