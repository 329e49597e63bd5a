package labelindex

import (
	"iter"
	"math"

	"github.com/margay-project/margay/pkg/keyset"
	"github.com/margay-project/margay/pkg/selector"
)

// selectionIndex holds selections. Those with a condition on a label are filed under it.
type selectionIndex[V, U any] struct {
	interner *interner[V, U]
	byText   keyset.Set[string, Selection[V, U]]
	others   map[*Selection[V, U]]struct{} // no condition is known
	filings  uint64                        // another number after each selection that came or went
}

func newSelectionIndex[V, U any](n *interner[V, U]) *selectionIndex[V, U] {
	return &selectionIndex[V, U]{interner: n, byText: keyset.New(selectionText[V, U]), others: map[*Selection[V, U]]struct{}{}, filings: 1}
}

func selectionText[V, U any](s *Selection[V, U]) string { return s.selector.String() }

// add adds a selection of a selector that byText has none of, filed under the condition that it returns.
func (x *selectionIndex[V, U]) add(sel *selector.Selector) (s *Selection[V, U], must selector.Restriction) {
	s = &Selection[V, U]{selector: sel}
	x.byText.Put(s)
	s.alone.who = s
	if name, condition, _, ok := x.cheapest(sel); ok {
		s.filed, must = x.interner.name(name), condition
	}
	x.file(s, must)
	return s, must
}

func (x *selectionIndex[V, U]) remove(s *Selection[V, U]) {
	x.byText.Delete(s.selector.String())
	x.unfile(s)
}

// must is the condition the selection is filed under.
func (s *Selection[V, U]) must() selector.Restriction {
	return s.selector.Restrictions()[s.filed.name]
}

// cheapest picks the condition to file a selector under: the one with the fewest groups and selectors that meet it, so
// that `app == "db" && orchestrator == "k8s"` is filed under app. The choice affects cost only. best is how many meet it.
func (x *selectionIndex[V, U]) cheapest(sel *selector.Selector) (label string, must selector.Restriction, best int, ok bool) {
	all := sel.Restrictions()
	for _, valued := range []bool{true, false} { // costly counts come last, when their bound is known
		for l, r := range all {
			if (r.Values != nil) != valued {
				continue
			}
			most := math.MaxInt
			if ok {
				most = best
			}
			cost := x.cost(l, r, most)
			if !ok || cost < best || cost == best && l < label {
				best, label, must, ok = cost, l, r, true
			}
		}
	}
	return label, must, best, ok
}

// cost counts the groups and selectors that meet a condition, up to one more than most.
func (x *selectionIndex[V, U]) cost(name string, r selector.Restriction, most int) int {
	of := x.interner.names[name]
	if of == nil {
		return 0
	}
	n := 0
	if r.Values == nil {
		n = len(of.selections)
		for l := range of.values.All() {
			groups, _ := l.count()
			if n += max(1, groups); n > most { // a value costs something even if only selections have it
				break
			}
		}
		return n
	}
	for _, v := range r.Values {
		if l := of.values.Get(v); l != nil {
			groups, selections := l.count()
			n += groups + selections
		}
	}
	return n
}

// groupCount counts the groups that meet a condition; a value that no group has counts as one where all values are looked at.
func (x *selectionIndex[V, U]) groupCount(name string, r selector.Restriction) (n int) {
	of := x.interner.names[name]
	switch {
	case of == nil:
	case r.Values == nil:
		for l := range of.values.All() {
			groups, _ := l.count()
			n += max(1, groups)
		}
	default:
		for _, v := range r.Values {
			if l := of.values.Get(v); l != nil {
				groups, _ := l.count()
				n += groups
			}
		}
	}
	return n
}

// groups yields at least those of all groups that a selector with a condition on a label matches; some more than once.
func (x *selectionIndex[V, U]) groups(of *labelName[V, U], must selector.Restriction) iter.Seq[*Group[V, U]] {
	return func(yield func(*Group[V, U]) bool) {
		each := func(l *label[V, U]) bool {
			for g := range l.all {
				if !yield(g) {
					return false
				}
			}
			return true
		}
		if must.Values == nil {
			for l := range of.values.All() {
				if !each(l) {
					return
				}
			}
			return
		}
		for _, v := range must.Values {
			if l := of.values.Get(v); l != nil && !each(l) {
				return
			}
		}
	}
}

// candidates yields at least the selections that match the group, each once.
func (x *selectionIndex[V, U]) candidates(g *Group[V, U]) iter.Seq[*Selection[V, U]] {
	return func(yield func(*Selection[V, U]) bool) {
		for s := range x.others {
			if !yield(s) {
				return
			}
		}
		for _, l := range g.labels {
			if !l.candidates(yield) {
				return
			}
		}
		for i, p := range g.parents() {
			for _, l := range x.filedOf(p) {
				if !g.overrides(l.of.name, i) && !l.candidates(yield) {
					return
				}
			}
		}
	}
}

// filedOf are the labels of a parent that selections are filed under. They are found once for all of its groups: a tenant may give a
// parent tens of thousands of labels, and have a thousand groups inherit them.
func (x *selectionIndex[V, U]) filedOf(p *parent[V, U]) []*label[V, U] {
	if p.filings == x.filings {
		return p.filed
	}
	p.filed, p.filings = p.filed[:0], x.filings
	for _, l := range p.labels {
		if l.isFiled() {
			p.filed = append(p.filed, l)
		}
	}
	return p.filed
}

// file files the selection under its condition, so that candidates finds it.
func (x *selectionIndex[V, U]) file(s *Selection[V, U], must selector.Restriction) {
	x.filings++
	switch {
	case s.filed == nil:
		x.others[s] = struct{}{}
	case must.Values == nil:
		if s.filed.selections == nil {
			s.filed.selections = map[*Selection[V, U]]struct{}{}
		}
		s.filed.selections[s] = struct{}{}
	default:
		for _, v := range must.Values {
			x.interner.label(s.filed.name, v).addSelection(s)
		}
	}
}

func (x *selectionIndex[V, U]) unfile(s *Selection[V, U]) {
	x.filings++
	if s.filed == nil {
		delete(x.others, s)
		return
	}
	if values := s.must().Values; values != nil {
		for _, v := range values {
			l := s.filed.values.Get(v)
			l.dropSelection(s)
			x.interner.dropLabel(l)
		}
	} else {
		delete(s.filed.selections, s)
	}
	x.interner.dropName(s.filed)
}
