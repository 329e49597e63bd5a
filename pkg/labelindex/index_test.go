package labelindex

import (
	"fmt"
	"slices"
	"testing"

	"github.com/margay-project/margay/pkg/selector"
)

type (
	testIndex     = Index[int, int]
	testItem      = Item[int, int]
	testSelection = Selection[int, int]
)

func newIndex() *testIndex { return New[int, int](nil) }

func sel(text string) *selector.Selector {
	s, err := selector.Parse(text)
	if err != nil {
		panic(err)
	}
	return s
}

func TestLabelsAreInheritedFromTheFirstParentThatHasThem(t *testing.T) {
	x := newIndex()
	x.relabel("p1", map[string]string{"own": "p1", "first": "p1"})
	x.relabel("p2", map[string]string{"own": "p2", "first": "p2", "second": "p2"})
	it := &testItem{}
	x.Join(it, Identity{Labels: map[string]string{"own": "x"}, Parents: []string{"p1", "absent", "p2"}})
	want := map[string]string{"own": "x", "first": "p1", "second": "p2"}
	for label, v := range want {
		if got, ok := it.group.Get(label); !ok || got != v {
			t.Errorf("%s is %q, %v", label, got, ok)
		}
	}
	for _, text := range []string{"own == 'p1'", "own == 'p2'", "first == 'p2'", "own == 'x'", "first == 'p1'", "second == 'p2'"} {
		x.Add(sel(text))
	}
	var tried []string
	for s := range x.selections.candidates(it.group) {
		tried = append(tried, s.Selector().String())
	}
	slices.Sort(tried)
	if want := []string{`first == "p1"`, `own == "x"`, `second == "p2"`}; !slices.Equal(tried, want) {
		t.Errorf("tried with %v, want %v", tried, want)
	}
}

// Of very many labels that a parent gives to its groups only those are looked at again and again that a selection is filed under.
func TestLabelsOfAParentAreLookedThroughOnce(t *testing.T) {
	x := newIndex()
	labels := func(flip string) map[string]string {
		m := map[string]string{"flip": flip}
		for i := range 1000 {
			m[fmt.Sprint("label-", i)] = "1"
		}
		return m
	}
	x.relabel("p", labels("1"))
	first := &testItem{}
	x.Join(first, Identity{Parents: []string{"p"}})
	p := x.parents.parents.Get("p")
	filed := func(want ...string) {
		t.Helper()
		x.Join(&testItem{}, Identity{Labels: map[string]string{"item": fmt.Sprint(len(x.groups.groups))}, Parents: []string{"p"}})
		var got []string
		for _, l := range p.filed {
			got = append(got, l.of.name+"="+l.value)
		}
		if p.filings != x.selections.filings || !slices.Equal(got, want) {
			t.Errorf("labels looked at: %v, want %v", got, want)
		}
	}
	filed()
	two := x.Add(sel("flip == '2'"))
	filed()
	one, named := x.Add(sel("label-7 == '1'")), x.Add(sel("has(label-8)"))
	filed("label-7=1", "label-8=1")
	x.Remove(one)
	x.Remove(named)
	filed()
	if changed := x.relabel("p", labels("2")); len(changed) != len(x.groups.groups) || two.IsEmpty() {
		t.Errorf("%d matches have changed", len(changed))
	}
	filed("flip=2")
}

// A bound of how many groups a selector is tried with is found in few steps, whatever values only selectors have.
func TestValuesThatOnlySelectionsHaveAreCounted(t *testing.T) {
	x := newIndex()
	for i := range 100 {
		x.Add(sel(fmt.Sprintf("a == 'v%d'", i)))
	}
	if n := x.selections.cost("a", selector.Restriction{}, 10); n != 11 {
		t.Errorf("counted up to %d", n)
	}
}

// A change must cost what it concerns: out of many selectors and groups, only those are matched that can match.
func TestOnlyCandidatesAreMatched(t *testing.T) {
	x := newIndex()
	var items []*testItem
	for i := range 200 {
		it := &testItem{}
		x.Join(it, Identity{Labels: map[string]string{
			"orchestrator": "k8s", "app": fmt.Sprintf("app-%d", i), "tier": fmt.Sprint(i % 2)}})
		items = append(items, it)
	}
	x.relabel("kns.a", map[string]string{"pcns.env": "prod"})
	inProd := &testItem{}
	x.Join(inProd, Identity{Parents: []string{"kns.a"}})
	groupsTried := func(text string) int {
		s := x.Add(sel(text))
		return len(slices.Collect(x.selections.groups(s.filed, s.must())))
	}
	for i := range 200 {
		if n := groupsTried(fmt.Sprintf("orchestrator == 'k8s' && app == 'app-%d' && has(tier)", i)); n != 1 {
			t.Fatalf("selector %d is matched against %d groups", i, n)
		}
	}
	if n := groupsTried("app in {'app-1', 'app-2'} && tier == '1'"); n != 2 {
		t.Errorf("two apps: matched against %d groups", n)
	}
	if n := groupsTried("pcns.env == 'prod' && app != 'app-1'"); n != 1 {
		t.Errorf("inherited label: matched against %d groups", n)
	}
	if n := len(slices.Collect(x.selections.candidates(items[3].group))); n != 1 {
		t.Errorf("a group is matched against %d selectors", n)
	}
}

func TestItemsWithEqualLabelsShareAGroup(t *testing.T) {
	x := newIndex()
	a, b, c := &testItem{}, &testItem{}, &testItem{}
	x.Join(a, Identity{Labels: map[string]string{"a": "1", "b": "2"}, Parents: []string{"p"}})
	x.Join(b, Identity{Labels: map[string]string{"b": "2", "a": "1"}, Parents: []string{"p"}})
	x.Join(c, Identity{Labels: map[string]string{"a": "2", "b": "1"}, Parents: []string{"p"}})
	if a.group != b.group || a.group == c.group {
		t.Errorf("groups %p %p %p", a.group, b.group, c.group)
	}
	x.Leave(a)
	x.Leave(b)
	if x.Leave(c); len(x.groups.groups) != 0 {
		t.Errorf("%d groups without items", len(x.groups.groups))
	}
}

// The labels of an object are as many as its author likes. They are in order of their names, which a search may use.
func TestLabelsAreFoundAmongAnyNumber(t *testing.T) {
	for _, n := range []int{0, 1, 15, 16, 17, 100, 20_000} {
		labels := map[string]string{}
		for i := range n {
			labels[fmt.Sprintf("label-%06d", i)] = fmt.Sprint(i)
		}
		x, it := newIndex(), &testItem{}
		x.relabel("p", map[string]string{"label-000003": "inherited", "only": "inherited"})
		x.Join(it, Identity{Labels: labels, Parents: []string{"p"}})
		for name, want := range labels {
			if got, ok := it.group.Get(name); !ok || got != want {
				t.Fatalf("%d labels: %s is %q, %t", n, name, got, ok)
			}
		}
		for _, absent := range []string{"", "label", "label-000003x", "zebra"} {
			if got, ok := it.group.Get(absent); ok {
				t.Errorf("%d labels: %q is %q", n, absent, got)
			}
		}
		if got, _ := it.group.Get("only"); got != "inherited" {
			t.Errorf("%d labels: the inherited one is %q", n, got)
		}
	}
}

// A selector is matched without looking at every label of a pod: reading the text of a label that is far from the one
// that is asked for would show here.
func BenchmarkLabelAmongManyLabels(b *testing.B) {
	labels := map[string]string{}
	for i := range 20_000 {
		labels[fmt.Sprintf("label-%06d", i)] = ""
	}
	x, it := newIndex(), &testItem{}
	x.Join(it, Identity{Labels: labels})
	for b.Loop() {
		it.group.Get("label-019999")
	}
}
