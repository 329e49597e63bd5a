package labelindex

import (
	"maps"
	"slices"

	"pgregory.net/rapid"
)

// inherited are the labels that an item inherits from one parent.
type inherited struct {
	labels map[string]string
	stale  bool // they are of before
}

// inherit has an item inherit the present labels of all of its parents.
func (w *world) inherit(number int) {
	w.inherited[number] = map[string]inherited{}
	for _, p := range w.identities[number].Parents {
		w.inherited[number][p] = inherited{labels: w.parents[p]}
	}
}

func (w *world) isStale(number int) bool {
	for _, of := range w.inherited[number] {
		if of.stale {
			return true
		}
	}
	return false
}

// supersede gives a parent labels that its present items do not inherit yet.
func (w *world) supersede(t *rapid.T, name string, labels map[string]string) {
	var got, want []int
	changes := !maps.Equal(w.parents[name], labels)
	w.parents[name] = labels
	for number, by := range w.inherited {
		if of, has := by[name]; has && !of.stale && changes {
			by[name] = inherited{of.labels, true}
			want = append(want, number)
		}
	}
	for g := range w.index.Supersede(name, labels) {
		for it := range g.Items() {
			got = append(got, it.Value)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("items %v inherit labels of before since parent %s has others, want %v", got, name, want)
	}
}

// renew has an item inherit the present labels.
func (w *world) renew(t *rapid.T, number int) {
	it := w.items[number]
	alone := true
	for other := range it.Group().Items() {
		alone = alone && other == it
	}
	w.inherit(number)
	was, first := w.index.Renew(it)
	n := 0
	for range it.Group().Items() {
		n++
	}
	if was.IsEmpty() != alone || first != (n == 1) {
		t.Fatalf("item %d was alone: %v, and is the first: %v", number, was.IsEmpty(), first)
	}
	for _, m := range w.index.Between(was, it.Group()) {
		if on := w.matches[m.Selection.Selector().String()]; on[number] == m.Now {
			t.Fatalf("%s matches item %d before, too: %v", m.Selection.Selector(), number, m.Now)
		} else if m.Now {
			on[number] = true
		} else {
			delete(on, number)
		}
	}
}

// checkChildren compares the items of each parent, whatever labels they inherit from it.
func (w *world) checkChildren(t *rapid.T) {
	for _, name := range []string{"p", "q", "r"} {
		var got, want []int
		for g := range w.index.Children(name) {
			for it := range g.Items() {
				got = append(got, it.Value)
			}
		}
		for number, by := range w.inherited {
			if _, has := by[name]; has {
				want = append(want, number)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) || w.index.IsParent(name) != (len(want) > 0) {
			t.Fatalf("parent %s has the items %v (any: %v), want %v", name, got, w.index.IsParent(name), want)
		}
	}
}
