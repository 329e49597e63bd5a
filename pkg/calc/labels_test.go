package calc

import (
	"fmt"
	"slices"
	"testing"
)

func TestLabelsAreInheritedFirstProfileWins(t *testing.T) {
	x := newLabelIndex()
	x.setParent("p1", map[string]string{"own": "p1", "first": "p1"})
	x.setParent("p2", map[string]string{"own": "p2", "first": "p2", "second": "p2"})
	it := &item{}
	x.join(it, identity{labels: map[string]string{"own": "x"}, profiles: []string{"p1", "absent", "p2"}})
	want := map[string]string{"own": "x", "first": "p1", "second": "p2"}
	for label, v := range want {
		if got, ok := it.group.Get(label); !ok || got != v {
			t.Errorf("%s is %q, %v", label, got, ok)
		}
	}
	n := 0
	for l := range it.group.effective() {
		if n++; want[l.of.name] != l.value {
			t.Errorf("effective %s is %q", l.of.name, l.value)
		}
	}
	if n != len(want) {
		t.Errorf("%d effective labels", n)
	}
}

// A change must cost what it concerns: out of many selectors and groups, only those are matched that can match.
func TestOnlyCandidatesAreMatched(t *testing.T) {
	x := newLabelIndex()
	var items []*item
	for i := range 200 {
		it := &item{}
		x.join(it, identity{labels: map[string]string{
			"orchestrator": "k8s", "app": fmt.Sprintf("app-%d", i), "tier": fmt.Sprint(i % 2)}})
		items = append(items, it)
	}
	x.setParent("kns.a", map[string]string{"pcns.env": "prod"})
	inProd := &item{}
	x.join(inProd, identity{profiles: []string{"kns.a"}})
	groupsTried := func(text string) int {
		s := x.add(sel(text))
		return len(slices.Collect(x.candidateGroups(s, s.must())))
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
	if n := len(slices.Collect(x.candidates(items[3].group))); n != 1 {
		t.Errorf("a group is matched against %d selectors", n)
	}
}

func TestItemsWithEqualLabelsShareAGroup(t *testing.T) {
	x := newLabelIndex()
	a, b, c := &item{}, &item{}, &item{}
	x.join(a, identity{labels: map[string]string{"a": "1", "b": "2"}, profiles: []string{"p"}})
	x.join(b, identity{labels: map[string]string{"b": "2", "a": "1"}, profiles: []string{"p"}})
	x.join(c, identity{labels: map[string]string{"a": "2", "b": "1"}, profiles: []string{"p"}})
	if a.group != b.group || a.group == c.group {
		t.Errorf("groups %p %p %p", a.group, b.group, c.group)
	}
	x.leave(a)
	x.leave(b)
	if x.leave(c); len(x.groups) != 0 {
		t.Errorf("%d groups without items", len(x.groups))
	}
}

// The labels of an object are as many as its author likes. They are in order of their names, which a search may use.
func TestLabelsAreFoundAmongAnyNumber(t *testing.T) {
	for _, n := range []int{0, 1, 15, 16, 17, 100, 20_000} {
		labels := map[string]string{}
		for i := range n {
			labels[fmt.Sprintf("label-%06d", i)] = fmt.Sprint(i)
		}
		x, it := newLabelIndex(), &item{}
		x.setParent("p", map[string]string{"label-000003": "inherited", "only": "inherited"})
		x.join(it, identity{labels: labels, profiles: []string{"p"}})
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
	x, it := newLabelIndex(), &item{}
	x.join(it, identity{labels: labels})
	for b.Loop() {
		it.group.Get("label-019999")
	}
}
