package labelindex

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// world is what an index was given, to compare with what it says.
type world struct {
	index      *testIndex
	parents    map[string]map[string]string
	items      map[int]*testItem
	identities map[int]Identity
	inherited  map[int]map[string]inherited // by item, and by parent
	selections map[string]*testSelection
	matches    map[string]map[int]bool // items by selector, as the returned changes have it
}

func newWorld(inherit func(string) map[string]string) *world {
	return &world{index: New[int, int](inherit), parents: map[string]map[string]string{}, items: map[int]*testItem{},
		identities: map[int]Identity{}, inherited: map[int]map[string]inherited{}, selections: map[string]*testSelection{}, matches: map[string]map[int]bool{}}
}

// labelsOf are the labels of an item by definition: its own, then those of its parents in order.
func (w *world) labelsOf(number int) map[string]string {
	labels := maps.Clone(w.identities[number].Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	for _, p := range w.identities[number].Parents {
		for name, value := range w.inherited[number][p].labels {
			if _, ok := labels[name]; !ok {
				labels[name] = value
			}
		}
	}
	return labels
}

// check compares every selector with every item, one by one.
func (w *world) check(t *rapid.T) {
	for text, s := range w.selections {
		got := map[int]bool{}
		for g := range s.Groups() {
			if g.IsEmpty() {
				t.Fatalf("%s matches a group whose last item has left", text)
			}
			for it := range g.Items() {
				got[it.Value] = true
			}
		}
		want := map[int]bool{}
		for number := range w.items {
			if s.Selector().Matches(selector.Map(w.labelsOf(number))) {
				want[number] = true
			}
		}
		if !maps.Equal(got, want) {
			t.Fatalf("%s matches %v, want %v", text, got, want)
		}
		if !maps.Equal(w.matches[text], want) {
			t.Fatalf("%s: changes say it matches %v, want %v", text, w.matches[text], want)
		}
	}
	w.checkGroups(t)
	w.checkChildren(t)
	for number, it := range w.items {
		var got, want []string
		for s := range it.Group().Selections() {
			got = append(got, s.Selector().String())
		}
		for text, s := range w.selections {
			if s.Selector().Matches(selector.Map(w.labelsOf(number))) {
				want = append(want, text)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("item %d is matched by %v, want %v", number, got, want)
		}
	}
}

// checkGroups compares the groups with the identities of all items: one for each. More of them would cost a match with every selector.
func (w *world) checkGroups(t *rapid.T) {
	groups := map[string]*Group[int, int]{}
	for number, it := range w.items {
		id := w.identities[number]
		key := fmt.Sprint(id.Labels, id.Parents, id.Ports)
		if got := it.Group().IsStale(); got != w.isStale(number) {
			t.Fatalf("item %d inherits labels of before: %v", number, got)
		} else if got { // beside those with the present labels, and with others of before
			continue
		}
		if g := groups[key]; g != nil && g != it.Group() {
			t.Fatalf("item %d is in another group than one like it: %s", number, key)
		}
		groups[key] = it.Group()
		if got := it.Group().Identity(); fmt.Sprint(got.Labels, got.Parents, got.Ports) != key {
			t.Fatalf("item %d is in the group of %v, it has %s", number, got, key)
		}
	}
}

// leave takes an item out.
func (w *world) leave(number int) {
	w.index.Leave(w.items[number])
	for s := range w.items[number].Group().Selections() {
		delete(w.matches[s.Selector().String()], number)
	}
	delete(w.items, number)
	delete(w.identities, number)
	delete(w.inherited, number)
}

func (w *world) join(number int, id Identity) {
	it := &testItem{Value: number}
	w.items[number], w.identities[number] = it, id
	w.inherit(number)
	w.index.Join(it, id)
	for s := range it.Group().Selections() {
		w.matches[s.Selector().String()][number] = true
	}
}

func (w *world) add(t *rapid.T, text string) {
	found := map[*Group[int, int]]int{}
	for g := range w.index.Matching(sel(text)) {
		found[g]++
	}
	s := w.index.Add(sel(text))
	for g := range s.Groups() {
		found[g]--
	}
	for g, n := range found {
		if n != 0 {
			t.Fatalf("of %v %s matches %d more without a selection than with one", g.Identity(), text, n)
		}
	}
	text = s.Selector().String()
	w.selections[text], w.matches[text] = s, map[int]bool{}
	for g := range s.Groups() {
		for it := range g.Items() {
			w.matches[text][it.Value] = true
		}
	}
}

func (w *world) setParent(name string, labels map[string]string) {
	w.parents[name] = labels
	for number := range w.items {
		if of, has := w.inherited[number][name]; has && !of.stale {
			w.inherited[number][name] = inherited{labels: labels}
		}
	}
	for _, m := range w.index.relabel(name, labels) {
		for it := range m.Group.Items() {
			if on := w.matches[m.Selection.Selector().String()]; m.Now {
				on[it.Value] = true
			} else {
				delete(on, it.Value)
			}
		}
	}
}

var (
	drawNumber = rapid.IntRange(0, 15)
	drawValue  = rapid.SampledFrom([]string{"", "x", "y"})
	drawLabels = rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "c"}), drawValue, 0, 3)
	drawParent = rapid.SampledFrom([]string{"p", "q", "r"})
	drawPort   = rapid.Custom(func(t *rapid.T) model.NamedPort {
		return model.NamedPort{Name: "http", Protocol: 6, Port: rapid.SampledFrom([]uint16{80, 81}).Draw(t, "port")}
	})
	drawText = rapid.SampledFrom([]string{"all()", "a == 'x'", "a == 'x' && b == 'y'", "has(c)", "!has(c)", "a in {'x', 'y'}",
		"b != 'x'", "has(a) && c == 'y'", "a == 'x' || b == 'y'", "!all()"})
)

// Whatever comes, goes and changes: the index says of each pair what the selector alone says of the labels alone, and the
// changes that it returns lead there. It is empty when everything is gone.
func TestIndexAgreesWithEachPairAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kept := map[string]map[string]string{}
		var inherit func(string) map[string]string
		if rapid.Bool().Draw(t, "inherits") {
			inherit = func(name string) map[string]string { return kept[name] }
		}
		w := newWorld(inherit)
		t.Repeat(map[string]func(*rapid.T){
			"join": func(t *rapid.T) {
				number := drawNumber.Draw(t, "item")
				if w.items[number] != nil {
					w.leave(number)
				}
				w.join(number, Identity{Labels: drawLabels.Draw(t, "labels"),
					Parents: rapid.SliceOfNDistinct(drawParent, 0, 3, rapid.ID).Draw(t, "parents"),
					Ports:   rapid.SliceOfN(drawPort, 0, 1).Draw(t, "ports")})
			},
			"leave": func(t *rapid.T) {
				if number := drawNumber.Draw(t, "item"); w.items[number] != nil {
					w.leave(number)
				}
			},
			"parent": func(t *rapid.T) {
				name, labels := drawParent.Draw(t, "parent"), drawLabels.Draw(t, "labels")
				kept[name] = labels
				w.setParent(name, labels)
			},
			"parent, item by item": func(t *rapid.T) {
				name, labels := drawParent.Draw(t, "parent"), drawLabels.Draw(t, "labels")
				kept[name] = labels
				w.supersede(t, name, labels)
			},
			"renew": func(t *rapid.T) {
				if number := drawNumber.Draw(t, "item"); w.items[number] != nil && w.isStale(number) {
					w.renew(t, number)
				}
			},
			"add": func(t *rapid.T) {
				if text := drawText.Draw(t, "selector"); w.selections[sel(text).String()] == nil {
					w.add(t, text)
				}
			},
			"remove": func(t *rapid.T) {
				text := sel(drawText.Draw(t, "selector")).String()
				if s := w.selections[text]; s != nil {
					w.index.Remove(s)
					delete(w.selections, text)
					delete(w.matches, text)
				}
			},
			"": w.check,
		})
		for number := range w.items {
			w.leave(number)
		}
		for _, s := range w.selections {
			w.index.Remove(s)
		}
		for name := range w.parents {
			w.index.relabel(name, nil)
		}
		if n := w.index.Len(); n != 0 {
			t.Fatalf("%d things are left: %+v", n, w.index)
		}
	})
}

// Maps that were large once are made small again.
func TestMemoryOfWhatIsGoneIsGivenBack(t *testing.T) {
	x := newIndex()
	var items []*testItem
	for i := range 1000 {
		it := &testItem{}
		x.Join(it, Identity{Labels: map[string]string{"pod": fmt.Sprint(i)}})
		items = append(items, it)
	}
	x.Shrink()
	if x.groups.most < 1000 || x.interner.names["pod"].values.Len() < 1000 {
		t.Errorf("%d groups and %d values, want what the test is about", x.groups.most, x.interner.names["pod"].values.Len())
	}
	for _, it := range items[1:] {
		x.Leave(it)
	}
	x.Shrink()
	if x.groups.most > 64 {
		t.Errorf("a map for %d groups", x.groups.most)
	}
	if x.Leave(items[0]); x.interner.names["pod"] != nil {
		t.Error("a label that no item has")
	}
}

// relabel is SetParent that returns all changed matches.
func (x *Index[V, U]) relabel(name string, labels map[string]string) (all []Match[V, U]) {
	x.SetParent(name, labels, func(changed []Match[V, U]) { all = append(all, changed...) })
	return all
}
