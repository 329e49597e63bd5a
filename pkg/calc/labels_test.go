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
