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

	filed *labelName[V, U] // of the one necessary condition it is filed under; nil: it has none
	alone users[V, U]      // the selection

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
