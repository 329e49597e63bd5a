package labelindex

import (
	"iter"
	"slices"

	"github.com/margay-project/margay/pkg/selector"
)

// Selection is a selector in an index with the groups it matches. It stays in the index until it is removed. U is what the
// user of the index keeps with it.
type Selection[V, U any] struct {
	selector *selector.Selector
	groups   []member[V, U]
	round    uint64 // of rematch, see there

	// The label of the one necessary condition it is filed under, if it has any.
	label       string
	conditional bool

	Use U
}

// member is a group that a selection matches, and matched the same from the group's side. Each knows its position in the
// other's list.
type member[V, U any] struct {
	group *Group[V, U]
	at    int // in group.matches
}

type matched[V, U any] struct {
	selection *Selection[V, U]
	at        int // in selection.groups
}

// Match is a selection that starts (Now) or stops to match a group.
type Match[V, U any] struct {
	Selection *Selection[V, U]
	Group     *Group[V, U]
	Now       bool
}

// Selector returns the selector.
func (s *Selection[V, U]) Selector() *selector.Selector { return s.selector }

// IsEmpty reports whether it matches nothing.
func (s *Selection[V, U]) IsEmpty() bool { return len(s.groups) == 0 }

// Groups yields the groups it matches.
func (s *Selection[V, U]) Groups() iter.Seq[*Group[V, U]] {
	return func(yield func(*Group[V, U]) bool) {
		for i := range s.groups {
			if !yield(s.groups[i].group) {
				return
			}
		}
	}
}

// link notes that the selection matches the group.
func link[V, U any](s *Selection[V, U], g *Group[V, U]) {
	s.groups = append(s.groups, member[V, U]{g, len(g.matches)})
	g.matches = append(g.matches, matched[V, U]{s, len(s.groups) - 1})
}

// unlink notes that the i-th selection that matches the group does not do so any more.
func (g *Group[V, U]) unlink(i int) {
	m := g.matches[i]
	m.selection.forget(m.at)
	last := len(g.matches) - 1
	g.matches[i] = g.matches[last]
	g.matches[last] = matched[V, U]{}
	if g.matches = g.matches[:last]; i < last {
		moved := g.matches[i]
		moved.selection.groups[moved.at].at = i
	}
}

// forget takes the group at that position out of those the selection matches, and leaves the group as it is.
func (s *Selection[V, U]) forget(at int) {
	last := len(s.groups) - 1
	s.groups[at] = s.groups[last]
	s.groups[last] = member[V, U]{}
	if s.groups = s.groups[:last]; at < last {
		moved := s.groups[at]
		moved.group.matches[moved.at].at = at
	}
	if many := 64; cap(s.groups) > many && len(s.groups) < cap(s.groups)/4 {
		s.groups = slices.Clone(s.groups)
	}
}

// Add returns the selection of the selector, matched against every group. Equal selectors have one selection.
func (x *Index[V, U]) Add(sel *selector.Selector) *Selection[V, U] {
	text := sel.String()
	if s := x.selections.byText[text]; s != nil {
		return s
	}
	s := &Selection[V, U]{selector: sel}
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

// Remove takes the selection out of the index.
func (x *Index[V, U]) Remove(s *Selection[V, U]) {
	delete(x.selections.byText, s.selector.String())
	x.unfile(s)
	for i := len(s.groups) - 1; i >= 0; i-- {
		s.groups[i].group.unlink(s.groups[i].at)
	}
}

// rematch brings the group's matches up to date and returns those that started or stopped.
func (x *Index[V, U]) rematch(g *Group[V, U]) []Match[V, U] {
	// What matched has this round, and what matches and did so before, or is found to do so, the next.
	x.round += 2
	for _, m := range g.matches {
		m.selection.round = x.round - 1
	}
	known := len(g.matches)
	var changed []Match[V, U]
	for s := range x.candidates(g) {
		if s.round == x.round || !s.selector.Matches(g) {
			continue
		}
		if s.round != x.round-1 {
			link(s, g)
			changed = append(changed, Match[V, U]{s, g, true})
		}
		s.round = x.round
	}
	for i := known - 1; i >= 0; i-- {
		if s := g.matches[i].selection; s.round != x.round {
			g.unlink(i)
			changed = append(changed, Match[V, U]{s, g, false})
		}
	}
	return changed
}
