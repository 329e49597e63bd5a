package calc

import (
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// setTable holds the address sets and their members, counted: a prefix is a member as long as one item contributes it. It
// knows which sets have changed, and nothing of why an item is a member.
type setTable struct {
	byID        map[model.SetID]*set
	touched     map[*set]struct{}        // new, gone or changed since the last flush
	repopulated map[*definition]struct{} // by port, or past a limit, and a set got its first or lost its last member
}

// set is one address set.
type set struct {
	id         model.SetID
	definition *definition // nil for reserved sets
	port       portKey
	members    members

	applied bool                  // a flush has returned it
	dropped bool                  // it does not exist any more
	earlier map[netip.Prefix]bool // of an applied set: whether prefixes that have changed since the last flush were members
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
	was, now := s.members.add(p, delta)
	if (was == 0) == (now == 0) {
		return
	}
	if d := s.definition; d != nil && (d.key.kind.byPort() || s.port.past) {
		x.repopulated[d] = struct{}{}
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
		if s.members.len() == 0 && (d.key.kind.byPort() || k.past) {
			delete(d.sets, k)
			x.drop(s)
		}
	}
	return live
}

// changes returns what happened to the sets since the last flush, and starts over.
func (x *setTable) changes() map[model.SetID]*model.SetChange {
	var out map[model.SetID]*model.SetChange
	put := func(id model.SetID, c *model.SetChange) {
		if out == nil {
			out = map[model.SetID]*model.SetChange{}
		}
		out[id] = c
	}
	for s := range x.touched {
		switch {
		case s.dropped && s.applied:
			c := s.difference()
			c.Gone = true
			put(s.id, c)
		case s.dropped: // came and went unseen
		case !s.applied:
			s.applied = true
			put(s.id, &model.SetChange{Added: s.sorted()})
		default:
			if c := s.difference(); len(c.Added)+len(c.Removed) > 0 {
				put(s.id, c)
			}
		}
		s.earlier = nil
		s.members.shrink()
	}
	empty(&x.touched)
	return out
}

// restate has changes return every set with all its members, as if no flush had returned it.
func (x *setTable) restate() {
	for _, s := range x.byID {
		s.applied, s.earlier = false, nil
		x.touched[s] = struct{}{}
	}
}

// difference is how the members have changed since the last flush.
func (s *set) difference() *model.SetChange {
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

func (s *set) sorted() []netip.Prefix {
	if s.members.len() == 0 {
		return nil
	}
	all := slices.AppendSeq(make([]netip.Prefix, 0, s.members.len()), s.members.all())
	slices.SortFunc(all, comparePrefixes)
	return all
}

// comparePrefixes orders as netip.Prefix.Compare does. Members are single addresses nearly always, and those need no masks.
func comparePrefixes(a, b netip.Prefix) int {
	if a.IsSingleIP() && b.IsSingleIP() {
		return a.Addr().Compare(b.Addr())
	}
	return a.Compare(b)
}
