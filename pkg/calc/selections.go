package calc

import (
	"iter"
	"math"
	"slices"

	"github.com/margay-project/margay/pkg/selector"
)

// selection is a selector in a labelIndex with the groups it matches. It stays in the index while something uses it.
type selection struct {
	selector *selector.Selector
	groups   []member
	round    uint64 // of rematch, see there

	// The label of the one necessary condition it is filed under, if it has any.
	label       string
	conditional bool

	active   bool                     // in the local index: it matched anything when its policies were last looked at
	policies []*policy                // in the local index: those that apply to what it matches
	addrs    *definition              // in the cluster-wide index: the set of what it matches, if a rule needs it
	ports    map[string][]*definition // and the named ports of what it matches, by port name
}

// member is a group that a selection matches, matched the same from the group's side. Each knows its position in the
// other's list.
type (
	member struct {
		group *group
		at    int // in group.matches
	}
	matched struct {
		selection *selection
		at        int // in selection.groups
	}
)

// link notes that the selection matches the group.
func link(s *selection, g *group) {
	s.groups = append(s.groups, member{g, len(g.matches)})
	g.matches = append(g.matches, matched{s, len(s.groups) - 1})
}

// unlink notes that the i-th selection that matches the group does not do so any more.
func (g *group) unlink(i int) {
	m := g.matches[i]
	m.selection.forget(m.at)
	last := len(g.matches) - 1
	g.matches[i] = g.matches[last]
	g.matches[last] = matched{}
	if g.matches = g.matches[:last]; i < last {
		moved := g.matches[i]
		moved.selection.groups[moved.at].at = i
	}
}

// forget takes the group at that position out of those the selection matches, and leaves the group as it is.
func (s *selection) forget(at int) {
	last := len(s.groups) - 1
	s.groups[at] = s.groups[last]
	s.groups[last] = member{}
	if s.groups = s.groups[:last]; at < last {
		moved := s.groups[at]
		moved.group.matches[moved.at].at = at
	}
	if many := 64; cap(s.groups) > many && len(s.groups) < cap(s.groups)/4 {
		s.groups = slices.Clone(s.groups)
	}
}

// all yields the groups it matches.
func (s *selection) all() iter.Seq[*group] {
	return func(yield func(*group) bool) {
		for _, m := range s.groups {
			if !yield(m.group) {
				return
			}
		}
	}
}

// must is the condition the selection is filed under.
func (s *selection) must() selector.Restriction { return s.selector.Restrictions()[s.label] }

func (s *selection) unused() bool {
	return len(s.policies) == 0 && s.addrs == nil && len(s.ports) == 0
}

// match is a selector that starts (now) or stops to match a group.
type match struct {
	selection *selection
	group     *group
	now       bool
}

// selectionIndex holds selections. Those with a condition on a label are filed under it.
type selectionIndex struct {
	byText map[string]*selection
	others map[*selection]struct{} // no condition is known
}

func newSelectionIndex() selectionIndex {
	return selectionIndex{byText: map[string]*selection{}, others: map[*selection]struct{}{}}
}

// add returns the selection of the selector, matched against every group.
func (x *labelIndex) add(sel *selector.Selector) *selection {
	text := sel.String()
	if s := x.selections.byText[text]; s != nil {
		return s
	}
	s := &selection{selector: sel}
	x.selections.byText[text] = s
	var must selector.Restriction
	s.label, must, s.conditional = x.cheapest(sel)
	x.file(s, must)
	for g := range x.candidateGroups(s, must) {
		// A group that has come up before was matched last.
		if again := len(g.matches) > 0 && g.matches[len(g.matches)-1].selection == s; !again && sel.Matches(g) {
			link(s, g)
		}
	}
	s.groups = slices.Clip(s.groups)
	return s
}

// removeUnused takes the selection out of the index if nothing uses it any more.
func (x *labelIndex) removeUnused(s *selection) {
	if !s.unused() {
		return
	}
	delete(x.selections.byText, s.selector.String())
	x.unfile(s)
	for i := len(s.groups) - 1; i >= 0; i-- {
		s.groups[i].group.unlink(s.groups[i].at)
	}
}

// rematch brings the group's matches up to date and returns those that started or stopped.
func (x *labelIndex) rematch(g *group) []match {
	// What matched has this round, and what matches and did so before, or is found to do so, the next.
	x.round += 2
	for _, m := range g.matches {
		m.selection.round = x.round - 1
	}
	known := len(g.matches)
	var changed []match
	for s := range x.candidates(g) {
		if s.round == x.round || !s.selector.Matches(g) {
			continue
		}
		if s.round != x.round-1 {
			link(s, g)
			changed = append(changed, match{s, g, true})
		}
		s.round = x.round
	}
	for i := known - 1; i >= 0; i-- {
		if s := g.matches[i].selection; s.round != x.round {
			g.unlink(i)
			changed = append(changed, match{s, g, false})
		}
	}
	return changed
}

// cheapest picks the condition to file a selector under: the one with the fewest groups and selectors that meet it, so
// that `app == "db" && orchestrator == "k8s"` is filed under app. The choice affects cost only.
func (x *labelIndex) cheapest(sel *selector.Selector) (label string, must selector.Restriction, ok bool) {
	label, must, _, ok = x.cheapestCost(sel)
	return label, must, ok
}

// candidatesOf is about how many groups a selector is matched against when it is added.
func (x *labelIndex) candidatesOf(sel *selector.Selector) int {
	if _, _, cost, ok := x.cheapestCost(sel); ok {
		return cost
	}
	return len(x.groups)
}

func (x *labelIndex) cheapestCost(sel *selector.Selector) (label string, must selector.Restriction, best int, ok bool) {
	all := sel.Restrictions()
	for _, valued := range []bool{true, false} { // what takes long to count comes last, when it is known how far to count
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
func (x *labelIndex) cost(name string, r selector.Restriction, most int) int {
	of := x.labels[name]
	if of == nil {
		return 0
	}
	n := 0
	if r.Values == nil {
		n = len(of.selections)
		for _, l := range of.values {
			if n += l.count(); n > most {
				break
			}
		}
		return n
	}
	for _, v := range r.Values {
		if l := of.values[v]; l != nil {
			n += l.count() + len(l.selected())
		}
	}
	return n
}

// candidateGroups yields at least the groups the selection matches; some more than once.
func (x *labelIndex) candidateGroups(s *selection, must selector.Restriction) iter.Seq[*group] {
	if !s.conditional {
		return x.all()
	}
	return func(yield func(*group) bool) {
		of := x.labels[s.label]
		if of == nil {
			return
		}
		each := func(l *labelValue) bool {
			for g := range l.all() {
				if !yield(g) {
					return false
				}
			}
			return true
		}
		if must.Values == nil {
			for _, l := range of.values {
				if !each(l) {
					return
				}
			}
			return
		}
		for _, v := range must.Values {
			if l := of.values[v]; l != nil && !each(l) {
				return
			}
		}
	}
}

// candidates yields at least the selections that match the group, each once.
func (x *labelIndex) candidates(g *group) iter.Seq[*selection] {
	return func(yield func(*selection) bool) {
		for s := range x.selections.others {
			if !yield(s) {
				return
			}
		}
		for l := range g.effective() {
			for s := range l.of.selections {
				if !yield(s) {
					return
				}
			}
			for _, s := range l.selected() {
				if !yield(s) {
					return
				}
			}
		}
	}
}

// file files the selection under its condition, so that candidates finds it.
func (x *labelIndex) file(s *selection, must selector.Restriction) {
	switch {
	case !s.conditional:
		x.selections.others[s] = struct{}{}
	case must.Values == nil:
		put(&x.name(s.label).selections, s, struct{}{})
	default:
		for _, v := range must.Values {
			u := x.label(s.label, v).use()
			u.selections = append(u.selections, s)
		}
	}
}

func (x *labelIndex) unfile(s *selection) {
	must := s.must()
	switch {
	case !s.conditional:
		delete(x.selections.others, s)
	case must.Values == nil:
		delete(x.name(s.label).selections, s)
		x.dropNameIfUnused(x.name(s.label))
	default:
		for _, v := range must.Values {
			l := x.label(s.label, v)
			l.uses.selections = without(l.uses.selections, s)
			x.dropLabelIfUnused(l)
		}
	}
}
