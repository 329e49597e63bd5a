package plan

import (
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// changedSets are the sets of one Update whose members change, by the lists of those. The sets of all ports of an EndpointSlice share
// theirs, and there may be very many.
type changedSets struct {
	lists map[model.ListKey]int // index in parts
	parts []changedPart
}

type changedPart struct {
	prefixes    []netip.Prefix
	join, leave []uint32
}

// note has the members of a set change with the others.
func (c *changedSets) note(num uint32, change *model.SetChange) {
	if p := c.part(change.Removed); p != nil {
		p.leave = append(p.leave, num)
	}
	if p := c.part(change.Added); p != nil {
		p.join = append(p.join, num)
	}
}

func (c *changedSets) part(list []netip.Prefix) *changedPart {
	if len(list) == 0 {
		return nil
	}
	key := model.ListKeyOf(list)
	at, known := c.lists[key]
	if !known {
		if c.lists == nil {
			c.lists = map[model.ListKey]int{}
		}
		at = len(c.parts)
		c.lists[key] = at
		c.parts = append(c.parts, changedPart{prefixes: list})
	}
	return &c.parts[at]
}

// changeMembers changes the members of the sets that an Update has changed.
func (s *setNumbers) changeMembers() {
	parts := s.changed.parts
	if len(parts) > fewParts {
		parts = regroup(parts)
	}
	for _, p := range parts {
		slices.Sort(p.join)
		slices.Sort(p.leave)
		s.classes.Change(p.prefixes, p.join, p.leave)
	}
	s.changed = changedSets{}
}
