package calc

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// setTable holds the address sets and their members: a prefix is a member as long as one item contributes it. It
// knows which sets have changed, and nothing of why an item is a member.
type setTable struct {
	byID          map[model.SetID]*set
	touched       map[*set]struct{}        // new, gone or changed since the last flush
	repopulated   map[*definition]struct{} // by port, or past a limit, and a set got its first or lost its last member
	contributions uint64                   // made so far
	joined        int                      // members of sets since relief was last considered
	counted       int                      // prefixes into sets and out of them, so far
	lingering     bool                     // members that were withheld stay so
}

// set is one address set.
type set struct {
	id         model.SetID
	definition *definition // nil for reserved sets
	port       portKey
	members    members // counted
	listed     *listed // in place of members, of a set of a Service; nil for others

	applied bool                  // a flush has returned it
	dropped bool                  // it does not exist any more
	earlier map[netip.Prefix]bool // of an applied set: whether prefixes that have changed since the last flush were members
	late    map[netip.Prefix]bool // of earlier: those that the last flush has withheld
}

func newSetTable() *setTable {
	return &setTable{byID: map[model.SetID]*set{}, touched: map[*set]struct{}{}, repopulated: map[*definition]struct{}{}}
}

func (x *setTable) newSet(id model.SetID) *set {
	s := &set{id: id}
	x.byID[id] = s
	x.touched[s] = struct{}{}
	return s
}

// setOf returns the definition's set for the port, which it creates if there is none.
func (x *setTable) setOf(d *definition, port portKey) *set {
	s := d.sets[port]
	if s == nil {
		s = x.newSet(d.key.id(port))
		s.definition, s.port = d, port
		if d.key.kind.isListed() {
			s.listed = &listed{}
		}
		d.sets[port] = s
	}
	return s
}

func (x *setTable) drop(s *set) {
	s.dropped = true
	delete(x.byID, s.id)
	x.touched[s] = struct{}{}
}

// count adds delta to the number of contributors of a member.
func (x *setTable) count(s *set, p netip.Prefix, delta int32) {
	x.counted++
	was, now := s.members.add(p, delta)
	if (was == 0) == (now == 0) {
		return
	}
	if x.repopulate(s); now != 0 {
		x.joined++
	}
	if !s.applied {
		return
	}
	if s.earlier == nil {
		s.earlier = map[netip.Prefix]bool{}
		x.touched[s] = struct{}{}
	}
	if _, ok := s.earlier[p]; !ok {
		s.earlier[p] = was != 0
	}
}

// repopulate has the ports looked at again that have a set with members.
func (x *setTable) repopulate(s *set) {
	if d := s.definition; d != nil && (d.key.kind.byPort() || s.port.past) {
		x.repopulated[d] = struct{}{}
	}
}

// countAddrs counts the addresses of an item into (or out of) the set of a definition for a port.
func (x *setTable) countAddrs(d *definition, it *item, port portKey, delta int32) {
	for a := range it.Value.addrs() {
		if p, ok := hostPrefix(a); ok {
			x.count(x.setOf(d, port), p, delta)
		}
	}
}

// replaceAddrs replaces one object's contribution to a reserved set.
func (x *setTable) replaceAddrs(id model.SetID, was, now []netip.Addr) {
	for _, a := range now {
		if p, ok := hostPrefix(a); ok {
			x.count(x.byID[id], p, 1)
		}
	}
	for _, a := range was {
		if p, ok := hostPrefix(a); ok {
			x.count(x.byID[id], p, -1)
		}
	}
}

// dropEmpty drops the sets of a definition, by port or past a limit, that have no members, and returns the ports of the
// others, ascending.
func (x *setTable) dropEmpty(d *definition) (live []portKey) {
	live = d.livePorts()
	for k, s := range d.sets {
		if s.isEmpty() && (d.key.kind.byPort() || k.past) {
			delete(d.sets, k)
			x.drop(s)
		}
	}
	return live
}

// changes returns what happened to the sets since the last flush, and starts over.
func (x *setTable) changes() map[model.SetID]*model.SetChange {
	var out map[model.SetID]*model.SetChange
	of, closing, again := newTurnovers(), x.closing(), map[*set]struct{}{}
	put := func(id model.SetID, c *model.SetChange) {
		if out == nil {
			out = map[model.SetID]*model.SetChange{}
		}
		out[id] = c
	}
	for s := range x.touched {
		switch {
		case s.dropped && s.applied:
			c := s.difference(of)
			c.Gone = true
			put(s.id, c)
		case s.dropped: // came and went unseen
		case !s.applied:
			put(s.id, s.difference(of))
			s.applied = true
		default:
			c := s.difference(of)
			if s.withhold(c, closing[s.definition], x.lingering) {
				again[s] = struct{}{}
			}
			if len(c.Added)+len(c.Removed) > 0 {
				put(s.id, c)
			}
		}
		if _, is := again[s]; !is {
			s.forget()
		}
		s.members.shrink()
	}
	empty(&x.touched)
	x.touched = again
	return out
}

// closing are the definitions whose sets of what is past a limit have got members since the last flush.
func (x *setTable) closing() map[*definition]bool {
	var all map[*definition]bool
	for s := range x.touched {
		if !s.port.past || s.dropped || s.listed != nil {
			continue
		}
		gains := !s.applied && !s.isEmpty()
		for p, was := range s.earlier {
			gains = gains || !was && s.members.has(p)
		}
		if gains {
			put(&all, s.definition, true)
		}
	}
	return all
}

// withhold has a later flush return members that leave a set, and reports whether there are any: all, if its definition is closing, but for
// those that were withheld before, and these if they are to linger. They are past a limit now, and the rules that fail closed for them have to be
// in force before they leave.
func (s *set) withhold(c *model.SetChange, closing, lingering bool) bool {
	if s.port.past || s.listed != nil || !closing && len(s.late) == 0 {
		return false
	}
	late := map[netip.Prefix]bool{}
	c.Removed = slices.DeleteFunc(c.Removed, func(p netip.Prefix) bool {
		if s.late[p] && lingering || !s.late[p] && closing {
			late[p] = true
		}
		return late[p]
	})
	if len(late) == 0 {
		return false
	}
	s.earlier, s.late = maps.Clone(late), late
	return true
}

// isWithheld reports whether changes have been withheld.
func (x *setTable) isWithheld() bool {
	for s := range x.touched {
		if len(s.late) > 0 {
			return true
		}
	}
	return false
}

// restate has changes return every set with all its members, as if no flush had returned it.
func (x *setTable) restate() {
	for _, s := range x.byID {
		s.applied = false
		s.forget()
		x.touched[s] = struct{}{}
	}
}

// forget is for a set whose changes need not be known any more.
func (s *set) forget() {
	s.earlier, s.late = nil, nil
	if s.listed != nil {
		s.listed.earlier = nil
	}
}

// difference is how the members have changed since the last flush; all are new if that did not return the set.
func (s *set) difference(of *turnovers) *model.SetChange {
	if s.listed != nil {
		return of.difference(s)
	}
	if !s.applied {
		return &model.SetChange{Added: s.sorted()}
	}
	c := &model.SetChange{}
	for p, was := range s.earlier {
		now := s.members.has(p)
		switch {
		case now && !was:
			c.Added = append(c.Added, p)
		case was && !now:
			c.Removed = append(c.Removed, p)
		}
	}
	slices.SortFunc(c.Added, comparePrefixes)
	slices.SortFunc(c.Removed, comparePrefixes)
	return c
}

func (s *set) isEmpty() bool {
	if s.listed != nil {
		return len(s.listed.from) == 0
	}
	return s.members.len() == 0
}

// len is how many members the set has; of a listed set, as of the last flush.
func (s *set) len() int {
	if s.listed != nil {
		return s.listed.size
	}
	return s.members.len()
}

// all returns the members, in no order.
func (s *set) all() []netip.Prefix {
	if s.listed != nil {
		return slices.Clone(s.listed.members())
	}
	return slices.AppendSeq(make([]netip.Prefix, 0, s.members.len()), s.members.all())
}

func (s *set) sorted() []netip.Prefix {
	switch {
	case s.isEmpty():
		return nil
	case s.listed != nil:
		return s.all()
	}
	return s.members.sorted()
}

func (s *set) contains(addr netip.Addr) bool {
	if s.listed != nil {
		return s.listed.contains(addr)
	}
	return s.members.contains(addr)
}

// comparePrefixes orders as netip.Prefix.Compare does. Members are single addresses nearly always, and those need no masks.
func comparePrefixes(a, b netip.Prefix) int {
	if a.IsSingleIP() && b.IsSingleIP() {
		return a.Addr().Compare(b.Addr())
	}
	return a.Compare(b)
}
