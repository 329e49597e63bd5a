package calc

import (
	"iter"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// selection is a selector in a labelIndex with the groups it matches. It stays in the index while something uses it.
type selection struct {
	selector *selector.Selector
	groups   map[*group]struct{}
	round    uint64 // of the last rematch in which it matched

	// The one necessary condition it is filed under, if it has any.
	conditional bool
	label       string
	must        selector.Restriction

	policies map[model.PolicyKey]*policy // in the local index: those that apply to what it matches
	active   bool                        // and whether it matched anything when they were last looked at
	addrs    *definition                 // in the cluster-wide index: the set of what it matches, if a rule needs it
	ports    map[string][]*definition    // and the named ports of what it matches, by port name
}

func (s *selection) unused() bool {
	return len(s.policies) == 0 && s.addrs == nil && len(s.ports) == 0
}

// match is a selector that starts (now) or stops to match a group.
type match struct {
	selection *selection
	group     *group
	now       bool
}

// selectionIndex files selections under a condition on one label.
type selectionIndex struct {
	byText  map[string]*selection
	byValue postings[*selection]               // the label must have this value
	byLabel map[string]map[*selection]struct{} // the label must be present
	others  map[*selection]struct{}            // no condition is known
}

func newSelectionIndex() selectionIndex {
	return selectionIndex{
		byText:  map[string]*selection{},
		byValue: postings[*selection]{},
		byLabel: map[string]map[*selection]struct{}{},
		others:  map[*selection]struct{}{},
	}
}

// add returns the selection of the selector, matched against every group.
func (x *labelIndex) add(sel *selector.Selector) *selection {
	text := sel.String()
	if s := x.selections.byText[text]; s != nil {
		return s
	}
	s := &selection{selector: sel, groups: map[*group]struct{}{}}
	x.selections.byText[text] = s
	s.label, s.must, s.conditional = x.cheapest(sel)
	x.selections.file(s)
	for g := range x.candidateGroups(s) {
		if sel.Matches(g) {
			s.groups[g] = struct{}{}
			g.matches[s] = struct{}{}
		}
	}
	return s
}

// removeUnused takes the selection out of the index if nothing uses it any more.
func (x *labelIndex) removeUnused(s *selection) {
	if !s.unused() {
		return
	}
	delete(x.selections.byText, s.selector.String())
	x.selections.unfile(s)
	for g := range s.groups {
		delete(g.matches, s)
	}
}

// rematch brings the group's matches up to date and returns those that started or stopped.
func (x *labelIndex) rematch(g *group) []match {
	var changed []match
	x.round++
	for s := range x.selections.candidates(g) {
		if !s.selector.Matches(g) {
			continue
		}
		s.round = x.round
		if _, ok := g.matches[s]; !ok {
			g.matches[s] = struct{}{}
			s.groups[g] = struct{}{}
			changed = append(changed, match{s, g, true})
		}
	}
	for s := range g.matches {
		if s.round != x.round {
			delete(g.matches, s)
			delete(s.groups, g)
			changed = append(changed, match{s, g, false})
		}
	}
	return changed
}

// cheapest picks the condition to file a selector under: the one with the fewest groups and selectors that meet it, so
// that `app == "db" && orchestrator == "k8s"` is filed under app. The choice affects cost only.
func (x *labelIndex) cheapest(sel *selector.Selector) (label string, must selector.Restriction, ok bool) {
	best := 0
	for l, r := range sel.Restrictions() {
		cost := x.cost(l, r)
		if !ok || cost < best || cost == best && l < label {
			best, label, must, ok = cost, l, r, true
		}
	}
	return label, must, ok
}

func (x *labelIndex) cost(label string, r selector.Restriction) int {
	n := 0
	count := func(value string) {
		n += len(x.byOwn[label][value]) + len(x.selections.byValue[label][value])
		for p := range x.byInherited[label][value] {
			n += len(p.groups)
		}
	}
	if r.Values != nil {
		for _, v := range r.Values {
			count(v)
		}
		return n
	}
	for v := range x.byOwn[label] {
		count(v)
	}
	for v := range x.byInherited[label] {
		count(v)
	}
	return n + len(x.selections.byLabel[label])
}

// candidateGroups yields at least the groups the selection matches; some more than once.
func (x *labelIndex) candidateGroups(s *selection) iter.Seq[*group] {
	if !s.conditional {
		return x.all()
	}
	return func(yield func(*group) bool) {
		each := func(value string) bool {
			for g := range x.byOwn[s.label][value] {
				if !yield(g) {
					return false
				}
			}
			for p := range x.byInherited[s.label][value] {
				for g := range p.groups {
					if !yield(g) {
						return false
					}
				}
			}
			return true
		}
		if s.must.Values == nil {
			_ = eachKey(x.byOwn[s.label], each) && eachKey(x.byInherited[s.label], each)
			return
		}
		for _, v := range s.must.Values {
			if !each(v) {
				return
			}
		}
	}
}

func eachKey[V any](m map[string]V, f func(string) bool) bool {
	for k := range m {
		if !f(k) {
			return false
		}
	}
	return true
}

// candidates yields at least the selections that match the group, each once.
func (x *selectionIndex) candidates(g *group) iter.Seq[*selection] {
	return func(yield func(*selection) bool) {
		for s := range x.others {
			if !yield(s) {
				return
			}
		}
		for label, value := range g.effective() {
			for s := range x.byLabel[label] {
				if !yield(s) {
					return
				}
			}
			for s := range x.byValue[label][value] {
				if !yield(s) {
					return
				}
			}
		}
	}
}

func (x *selectionIndex) file(s *selection) {
	switch {
	case !s.conditional:
		x.others[s] = struct{}{}
	case s.must.Values == nil:
		if x.byLabel[s.label] == nil {
			x.byLabel[s.label] = map[*selection]struct{}{}
		}
		x.byLabel[s.label][s] = struct{}{}
	default:
		for _, v := range s.must.Values {
			x.byValue.add(s.label, v, s)
		}
	}
}

func (x *selectionIndex) unfile(s *selection) {
	switch {
	case !s.conditional:
		delete(x.others, s)
	case s.must.Values == nil:
		delete(x.byLabel[s.label], s)
		if len(x.byLabel[s.label]) == 0 {
			delete(x.byLabel, s.label)
		}
	default:
		for _, v := range s.must.Values {
			x.byValue.remove(s.label, v, s)
		}
	}
}
