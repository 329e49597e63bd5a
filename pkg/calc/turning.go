package calc

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// A network set may have 131,072 prefixes, and each that comes or goes while a rule refers to it is work for the graph, the compiler and the
// kernel. So a large change of one is made in parts, one with each flush. An address that the change concerns has its old memberships until
// its part comes, and then all of the new ones. One that belongs to the set before and after belongs to it all the time.

// turning is a network set that changes in parts.
type turning struct {
	id       model.NetworkSetID
	was, now *model.NetworkSet // with the prefixes that count; nil: there was none, there will be none
	alike    bool              // both have the same labels, so that one item stands for both
	joined   int               // so many of now's prefixes are in the sets
	left     int               // so many of was's prefixes are not any more
	out      bool              // it was left out, and is so until all prefixes count
	// The part under way ends here. An address may be in several prefixes of either, so those within each other are of one part.
	joins, leaves int
	changing      int // so many change in it
}

// before is what the rest of a set that changes its labels is called. No object can have that name.
func before(id model.NetworkSetID) model.NetworkSetID {
	id.Name += " (before)"
	return id
}

// InParts has later flushes make changes of network sets in parts of about so many prefixes, if more than twice as many change, give endpoints
// inherited labels in parts in which so many addresses join or leave sets (relabel.go), and look at some of the policies that are refused
// (spending.go); 0, as at first: at once. The caller asks Turning after each Flush, and flushes again.
func (g *Graph) InParts(most int) { g.networkSetTable.most, g.sets.spending.inParts = most, most > 0 }

// Turning are the namespaces in which more is to follow with the next Flush, "" for cluster-wide objects; none: all of the datastore's state
// that was applied is in force with the last Flush. True: network sets are being changed in parts, or inherited labels, or objects wait for their turn. Until that ends the graph
// is to get nothing newer of these sets, or it makes the rest at once, and no other labels, or it has to remember those as well. False: only
// policies wait (relief.go, spending.go). Newer ones would have those looked at again that have been.
func (g *Graph) Turning() map[string]bool {
	namespaces := map[string]bool{}
	for rs := range g.sets.relief.later {
		namespaces[rs.key.Namespace] = false
	}
	for _, s := range g.turning {
		namespaces[s.id.Namespace] = true
	}
	maps.Copy(namespaces, g.inherited.relabelling())
	maps.Copy(namespaces, g.pending.waiting())
	return namespaces
}

// Postponed are the policies that were applied and that the last Flush has left for a later one, in no order: labels that pods of their namespace
// inherit are being changed in parts, and they are written for the new ones. The slice is the caller's; nil: none. To be called before the next Apply.
func (g *Graph) Postponed() []model.PolicyKey {
	if len(g.pending.policies) == 0 {
		return nil
	}
	return slices.AppendSeq(make([]model.PolicyKey, 0, len(g.pending.policies)), maps.Keys(g.pending.policies))
}

// HasMore reports whether the next Flush has something to do without any update, though Turning names no namespace: there may be room now for
// what is left out of sets, or members of sets leave later than others come. Nothing newer need wait for it.
func (t *networkSetTable) HasMore() bool {
	return !t.sets.lingering && t.sets.isWithheld() || t.sets.hasUntried()
}

// HasLate reports whether members of sets leave later than the last Flush: rules that fail closed for them came with it. If Linger is called
// with true, they stay with the next Flush, too, because these rules are not in force yet.
func (t *networkSetTable) HasLate() bool { return t.sets.isWithheld() }

// Linger: see HasLate.
func (t *networkSetTable) Linger(on bool) { t.sets.lingering = on }

// begin starts to replace a network set in parts; false: it is to be replaced at once. now has the prefixes that count.
func (t *networkSetTable) begin(id model.NetworkSetID, now, value *model.NetworkSet) bool {
	s := &turning{id: id, now: now}
	item := t.networkSets[id]
	if item != nil {
		s.out = item.Value.isOut()
		s.was = &model.NetworkSet{Labels: item.value.Labels, Profiles: item.value.Profiles, Nets: item.Value.extra.nets.list()}
	}
	s.alike = s.was != nil && now != nil && maps.Equal(s.was.Labels, now.Labels) && slices.Equal(s.was.Profiles, now.Profiles)
	if !t.inSync || t.most == 0 || !s.isLarge(2*t.most) {
		return false
	}
	if !s.alike && now != nil {
		if item != nil {
			t.networkSets[before(id)] = item
			delete(t.networkSets, id)
		}
		t.put(id, value, netList{}, s.out || t.isOut(id, value))
	}
	if !t.isReferredTo(id) && !t.isReferredTo(before(id)) || !t.isRoom(id, len(netsOf(now))) {
		t.put(before(id), nil, netList{}, false)
		return false
	}
	if s.alike {
		item.value = value // its prefixes follow in parts
	}
	t.turning = append(t.turning, s)
	return true
}

// isReferredTo reports whether the prefixes of a network set are in sets.
func (t *networkSetTable) isReferredTo(id model.NetworkSetID) bool {
	ns := t.networkSets[id]
	if ns == nil {
		return false
	}
	for s := range ns.Group().Selections() {
		if s.Use.addrs != nil {
			return true
		}
	}
	return false
}

// isRoom reports whether every set that a network set is in has room for n prefixes more, which it may have before it has fewer.
func (t *networkSetTable) isRoom(id model.NetworkSetID, n int) bool {
	ns := t.networkSets[id]
	if ns == nil {
		return true
	}
	for s := range ns.Group().Selections() {
		if d := s.Use.addrs; d != nil && !t.sets.selected.found.isRoom(d, id.Namespace, n) {
			return false
		}
	}
	return t.room.has(id.Namespace, n)
}

// advance makes one part of the changes that are under way, of each in its turn.
func (t *networkSetTable) advance() {
	for left := t.most; left > 0 && len(t.turning) > 0; {
		s := t.turning[0]
		t.turning = t.turning[1:]
		left -= s.step(t.most)
		if !t.fits(s) {
			s.complete()
		}
		if t.show(s); !s.isDone() {
			t.turning = append(t.turning, s)
		}
	}
}

// finish makes the rest of a change at once, if it is under way.
func (t *networkSetTable) finish(id model.NetworkSetID) {
	i := slices.IndexFunc(t.turning, func(s *turning) bool { return s.id == id })
	if i < 0 {
		return
	}
	s := t.turning[i]
	t.turning = slices.Delete(t.turning, i, i+1)
	s.complete()
	t.show(s)
}

// fits reports whether there is room for what a change has come to. Others may have come since it began, and in the middle there may be more
// prefixes than before and after: the network set is not to lose its room to them.
func (t *networkSetTable) fits(s *turning) bool {
	n := s.joined + len(netsOf(s.was)) - s.left
	for _, id := range []model.NetworkSetID{s.id, before(s.id)} {
		if ns := t.networkSets[id]; ns != nil {
			n -= ns.Value.extra.held.nets
		}
	}
	return t.room.has(s.id.Namespace, n)
}

// show puts what a change has come to into the sets.
func (t *networkSetTable) show(s *turning) {
	joined, rest := netList{joined: netsOf(s.now)[:s.joined]}, netList{rest: netsOf(s.was)[s.left:]}
	if s.now == nil && s.isDone() {
		t.put(s.id, nil, netList{}, false)
		return
	}
	value := t.networkSets[s.id].value
	out := s.out && !s.isDone() || s.now != nil && t.isOut(s.id, value)
	switch {
	case s.now == nil:
		t.put(s.id, value, rest, s.out)
	case s.alike:
		t.put(s.id, value, netList{joined.joined, rest.rest}, out)
	case s.was == nil:
		t.put(s.id, value, joined, out)
	default:
		// Those that go make room for those that come.
		if of := t.networkSets[before(s.id)]; of != nil && rest.len() > 0 {
			t.put(before(s.id), of.value, rest, s.out)
		} else {
			t.put(before(s.id), nil, netList{}, false)
		}
		t.put(s.id, value, joined, out)
	}
}

func netsOf(s *model.NetworkSet) []netip.Prefix {
	if s == nil {
		return nil
	}
	return s.Nets
}

func (s *turning) isDone() bool {
	return s.joined == len(netsOf(s.now)) && s.left == len(netsOf(s.was))
}

// complete has the whole change come to its end.
func (s *turning) complete() { s.joined, s.left = len(netsOf(s.now)), len(netsOf(s.was)) }

// isLarge reports whether more than so many prefixes change. Lists that do not ascend are no objects' of a cluster, and change at once.
func (s *turning) isLarge(most int) bool {
	was, now := netsOf(s.was), netsOf(s.now)
	if len(was)+len(now) <= most {
		return false
	}
	ascend := func(l []netip.Prefix) bool { return slices.IsSortedFunc(l, netip.Prefix.Compare) }
	return s.changes(most) > most && ascend(was) && ascend(now)
}

// changes is how many prefixes change, or more than most.
func (s *turning) changes(most int) (n int) {
	for walk := (walk{turning: s}); n <= most && walk.more(); {
		n += walk.next()
	}
	return n
}

// step goes on by a part of about so many prefixes, and returns how many have joined and left.
func (s *turning) step(most int) int {
	joined, left := s.joined, s.left
	if joined == s.joins && left == s.leaves {
		s.begin(most)
	}
	switch {
	case !s.alike || s.changing <= 2*most:
		s.joined, s.left = s.joins, s.leaves
	case joined < s.joins: // a prefix is around very many. What comes is there before anything goes
		s.joined = min(s.joins, joined+most)
	default:
		s.left = min(s.leaves, left+most)
	}
	return s.joined - joined + s.left - left
}

// unchangedToo is how many times as many prefixes as those that change a part may have, with those that do not.
const unchangedToo = 4

// begin begins the next part: one of about so many changes, or more where prefixes are within each other.
func (s *turning) begin(most int) {
	var around netip.Prefix // the one that the last ones are in
	w := walk{turning: s, joined: s.joined, left: s.left}
	for s.changing = 0; w.more(); {
		if p := w.peek(); !around.IsValid() || !around.Contains(p.Addr()) {
			if s.changing >= most || w.joined-s.joined+w.left-s.left >= unchangedToo*most {
				break
			}
			around = p.Masked()
		}
		s.changing += w.next()
	}
	s.joins, s.leaves = w.joined, w.left
}

// walk goes through the prefixes of both, in order.
type walk struct {
	*turning
	joined, left int
}

func (w *walk) more() bool { return w.joined < len(netsOf(w.now)) || w.left < len(netsOf(w.was)) }

// peek is the next prefix.
func (w *walk) peek() netip.Prefix {
	now, was := netsOf(w.now)[w.joined:], netsOf(w.was)[w.left:]
	if len(now) == 0 || len(was) > 0 && was[0].Compare(now[0]) < 0 {
		return was[0]
	}
	return now[0]
}

// next goes on by one prefix, and returns in how many of the two it changes something.
func (w *walk) next() (changes int) {
	p := w.peek()
	if now := netsOf(w.now)[w.joined:]; len(now) > 0 && now[0] == p {
		w.joined++
		changes++
	}
	if was := netsOf(w.was)[w.left:]; len(was) > 0 && was[0] == p {
		w.left++
		changes++
	}
	if changes == 2 && w.alike {
		return 0
	}
	return changes
}
