package labelindex

import (
	"slices"
	"testing"
)

type testGroup = Group[int, int]

func newTestGroup() *testGroup {
	g := &testGroup{items: &testItem{}}
	g.alone.who = g
	return g
}

// A label exists as long as something uses it, as one value for all who do.
func TestALabelIsKeptAsLongAsItIsUsed(t *testing.T) {
	n := newInterner[int, int]()
	a, b := n.intern(map[string]string{"app": "db", "tier": "1"}), n.intern(map[string]string{"app": "db"})
	if len(a) != 2 || a[0] != b[0] || a[0].of.name != "app" || a[1].value != "1" {
		t.Fatalf("%+v and %+v", a, b)
	}
	g := newTestGroup()
	a[0].addGroup(g)
	n.dropLabel(a[0])
	n.dropLabel(a[1])
	if len(n.names) != 1 || n.names["app"].values.Get("db") != a[0] {
		t.Errorf("%v, want the label that a group has", n.names)
	}
	g.items = nil
	a[0].dropGroup(g)
	n.dropLabel(a[0])
	if len(n.names) != 0 {
		t.Errorf("%v is left", n.names)
	}
}

// A name that a selection is filed under outlives its last value.
func TestANameIsKeptForASelection(t *testing.T) {
	n := newInterner[int, int]()
	x := newSelectionIndex(n)
	s, _ := x.add(sel("has(app)"))
	n.dropLabel(n.label("app", "db"))
	if len(n.names) != 1 {
		t.Errorf("%d names while a selection asks for one", len(n.names))
	}
	if x.remove(s); len(n.names)+x.byText.Len()+len(x.others) != 0 {
		t.Errorf("left: %v %v %v", n.names, x.byText.Len(), x.others)
	}
}

func TestGroupsInheritAndParentsGo(t *testing.T) {
	tests := []struct {
		what    string
		inherit func(string) map[string]string
		kept    int // parents after the last group has left
	}{
		{"labels kept here", nil, 1},
		{"labels asked for", func(string) map[string]string { return map[string]string{"env": "test"} }, 0},
	}
	for _, tt := range tests {
		t.Run(tt.what, func(t *testing.T) {
			h := newInheritance(newInterner[int, int](), tt.inherit)
			g := &testGroup{items: &testItem{}}
			h.join(g, []string{"p"})
			if got := slices.Collect(h.set("p", map[string]string{"env": "prod"})); len(got) != 1 || got[0] != g {
				t.Errorf("a change concerns %v", got)
			}
			if got := slices.Collect(h.set("p", map[string]string{"env": "prod"})); len(got) != 0 {
				t.Errorf("the same labels again concern %v", got)
			}
			if h.labels("p")["env"] != "prod" || h.count("p") != 1 {
				t.Errorf("labels %v of %d groups", h.labels("p"), h.count("p"))
			}
			g.items = nil
			if h.leave(g); h.parents.Len() != tt.kept || len(h.interner.names) != tt.kept {
				t.Errorf("%d parents and %d names of labels are left, want %d", h.parents.Len(), len(h.interner.names), tt.kept)
			}
			for range h.set("p", nil) {
				t.Error("a group inherits that has left")
			}
			if h.parents.Len()+len(h.interner.names) != 0 {
				t.Errorf("%d parents and %d names of labels are left in the end", h.parents.Len(), len(h.interner.names))
			}
		})
	}
}

// An item that lists a parent twice counts as one child of it, when it joins and when it leaves.
func TestAParentThatIsListedTwiceIsOne(t *testing.T) {
	x := New[int, int](nil)
	var one, twice Item[int, int]
	x.Join(&one, Identity{Labels: map[string]string{"app": "h"}, Parents: []string{"kns.a"}})
	again := Identity{Labels: map[string]string{"app": "g"}, Parents: []string{"kns.a", "kns.a"}}
	x.Join(&twice, again)
	if !twice.Group().Has(again) || !slices.Equal(twice.Group().Identity().Parents, []string{"kns.a"}) {
		t.Errorf("it has the identity %+v", twice.Group().Identity())
	}
	s := x.Add(sel("env == 'prod'"))
	x.Leave(&twice)
	x.SetParent("kns.a", map[string]string{"env": "prod"}, func([]Match[int, int]) {})
	if found := slices.Collect(s.Groups()); len(found) != 1 || !x.IsParent("kns.a") {
		t.Errorf("%d groups are found by the label of their parent, want one", len(found))
	}
}

// Groups of one hash are found by their identity, and removed from any place among them.
func TestGroupsOfOneHashAreToldApart(t *testing.T) {
	for first := range 3 {
		table, n := newGroupTable[int, int](), newInterner[int, int]()
		var groups []*testGroup
		for _, app := range []string{"a", "b", "c"} {
			g := &testGroup{labels: n.intern(map[string]string{"app": app}), items: &testItem{}}
			hash := table.hashGroup(g)
			if found, at := table.find(g.Identity()); found != nil || at != hash {
				t.Fatalf("found %v at %d before it is there, want nothing at %d", found, at, hash)
			}
			table.add(g, 7)
			groups = append(groups, g)
		}
		if got := slices.Collect(table.all()); len(got) != 3 {
			t.Fatalf("%d groups", len(got))
		}
		for i := range groups {
			g := groups[(first+i)%3]
			// As if it had this hash of its own.
			table.unchain(g, 7)
			if slices.Contains(slices.Collect(table.all()), g) {
				t.Errorf("group %d is still there", (first+i)%3)
			}
		}
		if len(table.groups) != 0 {
			t.Errorf("%d lists are left", len(table.groups))
		}
	}
}

func TestASelectorIsFiledUnderItsRarestCondition(t *testing.T) {
	n := newInterner[int, int]()
	x := newSelectionIndex(n)
	for range 3 {
		n.label("orchestrator", "k8s").addGroup(newTestGroup())
	}
	n.label("app", "db").addGroup(newTestGroup())
	for _, tt := range []struct {
		text, label string
		meet        int
		conditional bool
	}{
		{"orchestrator == 'k8s' && app == 'db'", "app", 1, true},
		{"orchestrator == 'k8s' && has(app)", "app", 1, true},
		{"orchestrator == 'k8s' && has(none)", "none", 0, true},
		{"orchestrator == 'k8s'", "orchestrator", 3, true},
		{"orchestrator != 'k8s'", "", 0, false},
	} {
		label, _, meet, conditional := x.cheapest(sel(tt.text))
		if label != tt.label || meet != tt.meet || conditional != tt.conditional {
			t.Errorf("%s: under %q, which %d meet, %v", tt.text, label, meet, conditional)
		}
	}
}

// A label knows its users, be it one or several, of whatever kind, and however they come and go.
func TestALabelKnowsItsUsers(t *testing.T) {
	n := newInterner[int, int]()
	l := n.label("app", "db")
	g, s := newTestGroup(), &Selection[int, int]{}
	p := &parent[int, int]{}
	p.groups.add(newTestGroup())
	s.alone.who, p.alone.who = s, p
	type step struct {
		what   string
		do     func()
		groups int
		filed  int
	}
	come := []step{
		{"group", func() { l.addGroup(g) }, 1, 0},
		{"parent", func() { l.addParent(p) }, 1, 0},
		{"selection", func() { l.addSelection(s) }, 0, 1},
	}
	leave := []step{
		{"group", func() { g.items = nil; l.dropGroup(g); g.items = &testItem{} }, 1, 0},
		{"parent", func() { l.dropParent(p) }, 1, 0},
		{"selection", func() { l.dropSelection(s) }, 0, 1},
	}
	check := func(path string, groups, filed int) {
		t.Helper()
		g, f := l.count()
		if g != groups || f != filed || len(slices.Collect(l.all)) != groups || len(slices.Collect(l.selections)) != filed || l.isUsed() != (groups+filed > 0) {
			t.Errorf("%s: %d groups, %d selections, used: %v; want %d and %d", path, g, f, l.isUsed(), groups, filed)
		}
	}
	orders := [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}
	for most := 1; most <= 3; most++ {
		for _, in := range orders {
			for _, out := range orders {
				l.users = nil
				path, groups, filed := "", 0, 0
				for _, i := range in[:most] {
					come[i].do()
					path, groups, filed = path+" +"+come[i].what, groups+come[i].groups, filed+come[i].filed
					check(path, groups, filed)
				}
				for _, i := range out {
					if !slices.Contains(in[:most], i) {
						continue
					}
					leave[i].do()
					path, groups, filed = path+" -"+leave[i].what, groups-leave[i].groups, filed-leave[i].filed
					check(path, groups, filed)
				}
			}
		}
	}
}

// A selection that no value satisfies is filed under a name that nothing else keeps.
func TestASelectionOfNoValueLeavesItsNameAlone(t *testing.T) {
	n := newInterner[int, int]()
	x := newSelectionIndex(n)
	s, _ := x.add(sel("app in {}"))
	n.dropLabel(n.label("app", "db")) // the name goes with it
	l := n.label("app", "web")
	l.addGroup(newTestGroup())
	if x.remove(s); n.names["app"] == nil {
		t.Error("a name in use is forgotten")
	}
}
