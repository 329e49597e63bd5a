package calc

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// contribution is the prefixes that one object has in sets: ascending, each once. It is never changed, so that very many sets can share
// it, and the changes of sets, too.
type contribution struct {
	serial   uint64 // no other has it
	prefixes []netip.Prefix
}

// contribution returns a new one. It sorts the list, which belongs to it from then on.
func (x *setTable) contribution(prefixes []netip.Prefix) *contribution {
	x.contributions++
	return &contribution{serial: x.contributions, prefixes: ascending(prefixes)}
}

// listed is the members of a set that has whole contributions in place of counted members. An EndpointSlice is in a set for each of
// its ports, and its author may change all of them at once, so each address must not cost something in each set.
type listed struct {
	from    map[*contribution]int32 // and how often
	earlier map[*contribution]bool  // of an applied set: whether those that have changed since the last flush were in from
	size    int                     // members, as of the last flush
	union   []netip.Prefix          // of from, shared; nil: to be made
	wide    bool                    // union has prefixes that are not single addresses
}

// contribute adds delta to how often a listed set has a contribution.
func (x *setTable) contribute(s *set, c *contribution, delta int32) {
	l := s.listed
	wasEmpty := len(l.from) == 0
	was, now := addTo(&l.from, c, delta)
	if (was == 0) == (now == 0) {
		return
	}
	l.union = nil
	if wasEmpty != (len(l.from) == 0) {
		x.repopulate(s)
	}
	if !s.applied {
		return
	}
	x.touched[s] = struct{}{}
	if _, known := l.earlier[c]; !known {
		put(&l.earlier, c, was != 0)
	}
}

// members returns the members, ascending. The list is shared.
func (l *listed) members() []netip.Prefix {
	if l.union == nil {
		all := make([]*contribution, 0, len(l.from))
		for c := range l.from {
			all = append(all, c)
		}
		l.union = unionOf(all)
		l.wide = slices.ContainsFunc(l.union, func(p netip.Prefix) bool { return !p.IsSingleIP() })
	}
	return l.union
}

// contains reports whether the address is in one of the members.
func (l *listed) contains(addr netip.Addr) bool {
	p, ok := hostPrefix(addr)
	if !ok {
		return false
	}
	all := l.members()
	for bits := p.Bits(); bits >= 0 && (bits == p.Bits() || l.wide); bits-- {
		around, _ := p.Addr().Prefix(bits)
		if _, found := slices.BinarySearchFunc(all, around, comparePrefixes); found {
			return true
		}
	}
	return false
}

// turnovers are what it means for the members of a set that it has got and lost contributions, if it has no others. Those of one flush
// are remembered: all ports of an EndpointSlice have the same one.
type turnovers struct {
	unions map[string][]netip.Prefix // by the serials of contributions
	known  map[[2]string]turnover    // by those that came, and left
}

type turnover struct{ added, removed []netip.Prefix }

func newTurnovers() *turnovers {
	return &turnovers{unions: map[string][]netip.Prefix{}, known: map[[2]string]turnover{}}
}

// difference is how the members of a listed set have changed since the last flush, which its size follows; all are new if no flush has
// returned it. The lists are shared.
func (t *turnovers) difference(s *set) *model.SetChange {
	var came, left, rest []*contribution
	for c := range s.listed.from {
		if was, changed := s.listed.earlier[c]; !s.applied || changed && !was {
			came = append(came, c)
		} else {
			rest = append(rest, c)
		}
	}
	for c, was := range s.listed.earlier {
		if was && s.listed.from[c] == 0 {
			left = append(left, c)
		}
	}
	all := t.of(came, left)
	change := &model.SetChange{Added: except(all.added, rest), Removed: except(all.removed, rest)}
	if !s.applied {
		s.listed.size = 0
	}
	s.listed.size += len(change.Added) - len(change.Removed)
	return change
}

func (t *turnovers) of(came, left []*contribution) turnover {
	key := [2]string{serials(came), serials(left)}
	of, ok := t.known[key]
	if !ok {
		added, removed := t.unionOf(key[0], came), t.unionOf(key[1], left)
		of = turnover{except(added, []*contribution{{prefixes: removed}}), except(removed, []*contribution{{prefixes: added}})}
		t.known[key] = of
	}
	return of
}

func (t *turnovers) unionOf(serials string, list []*contribution) []netip.Prefix {
	union, ok := t.unions[serials]
	if !ok {
		union = unionOf(list)
		t.unions[serials] = union
	}
	return union
}

// serials sorts a list and returns its serials.
func serials(list []*contribution) string {
	slices.SortFunc(list, func(a, b *contribution) int { return cmp.Compare(a.serial, b.serial) })
	text := make([]byte, 0, 8*len(list))
	for _, c := range list {
		text = binary.BigEndian.AppendUint64(text, c.serial)
	}
	return string(text)
}
