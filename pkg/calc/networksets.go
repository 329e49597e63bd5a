package calc

import (
	"net/netip"

	"github.com/margay-project/margay/pkg/labelindex"
	"github.com/margay-project/margay/pkg/model"
)

// networkSetTable has the network sets of the cluster.
type networkSetTable struct {
	networkSets map[model.NetworkSetID]*networkSet
	prefixes    allotment // the limit for those of one namespace
	sets        *setIndex // which their prefixes join
	room        *room     // for those of all namespaces

	most    int        // InParts
	inSync  bool       // there is something in force
	turning []*turning // those that change in parts, the one whose turn it is first
}

func newNetworkSetTable(sets *setIndex) *networkSetTable {
	return &networkSetTable{networkSets: map[model.NetworkSetID]*networkSet{}, prefixes: newAllotment(MaxNetworkSetNets), sets: sets, room: sets.room}
}

// networkSet is one network set.
type networkSet struct {
	item  // in the cluster-wide index
	value *model.NetworkSet
}

// update replaces network sets; nil removes one. It replaces those, too, of their namespaces for which there is room now, or none any
// more. Global ones are not bounded. It returns those whose turn is with a later flush.
func (t *networkSetTable) update(changed map[model.NetworkSetID]*model.NetworkSet, turns *turns) (later map[model.NetworkSetID]*model.NetworkSet) {
	sizes := map[named]int{}
	for id, now := range changed {
		switch o := (named{id.Namespace, id.Name}); {
		case id.Namespace == "":
		case now == nil:
			sizes[o] = 0
		default:
			sizes[o] = len(now.Nets)
		}
	}
	for _, o := range t.prefixes.change(sizes) {
		other := model.NetworkSetID{Namespace: o.namespace, Name: o.name}
		if ns := t.networkSets[other]; ns != nil {
			t.replaceOne(other, ns.value)
		}
	}
	for id, now := range changed {
		if !turns.has(id.Namespace) {
			put(&later, id, now)
			continue
		}
		turns.spend(id.Namespace, func() { t.replaceOne(id, now) })
	}
	return later
}

// isOut reports whether a network set is past the limit of its namespace.
func (t *networkSetTable) isOut(id model.NetworkSetID, value *model.NetworkSet) bool {
	return value != nil && (value.LeftOut || t.prefixes.isOut(id.Namespace, id.Name))
}

// replaceOne replaces one network set; nil removes it. One that is left out has no prefixes, but what covers them.
func (t *networkSetTable) replaceOne(id model.NetworkSetID, value *model.NetworkSet) {
	t.finish(id)
	now := value
	if t.isOut(id, value) {
		now = &model.NetworkSet{Labels: now.Labels, Profiles: now.Profiles}
	}
	if !t.begin(id, now, value) {
		t.put(id, value, netList{joined: netsOf(now)}, t.isOut(id, value))
	}
}

// put has one network set count with these prefixes, and with what covers all that it has, if some of it is left out; without a value it
// removes it.
func (t *networkSetTable) put(id model.NetworkSetID, value *model.NetworkSet, nets netList, out bool) {
	was := t.networkSets[id]
	delete(t.networkSets, id)
	if value != nil {
		ns := &networkSet{value: value}
		if ns.Value.more().nets = nets; out {
			ns.Value.extra.out, ns.Value.extra.cover = true, coarse(value.Nets)
		}
		ns.Value.extra.held = t.room.succeed(was, id.Namespace, nets.len())
		t.sets.selected.labels.Join(&ns.item, labelindex.Identity{Labels: value.Labels, Parents: value.Profiles})
		t.networkSets[id] = ns
		if was != nil && was.Group() == ns.Group() {
			t.exchange(&was.item, &ns.item)
			t.leave(was)
			return
		}
		t.sets.enter(&ns.item)
	}
	if was != nil {
		t.sets.exit(&was.item)
		t.leave(was)
	}
}

func (t *networkSetTable) leave(ns *networkSet) {
	t.sets.selected.found.forget(&ns.item)
	t.sets.selected.labels.Leave(&ns.item)
}

// exchange counts one network set in for another of the same group. That takes time for what differs alone, since sets may be large and
// change often.
func (t *networkSetTable) exchange(was, now *item) {
	out, in := was.Value.extra.nets.differ(now.Value.extra.nets)
	for s := range now.Group().Selections() {
		if d := s.Use.addrs; d != nil {
			t.sets.selected.exchange(d, was, now, out, in)
		}
	}
}

// isLeftOut reports whether a network set is left out wherever it is found: it is past the limit of its namespace, or there is no room.
func (ns *networkSet) isLeftOut() bool { return ns.Value.isOut() || ns.hasNoRoom() }

// hasNoRoom reports whether there is no room for it among those of all namespaces.
func (ns *networkSet) hasNoRoom() bool {
	if ns.Value.nets() == 0 || ns.Value.extra.held.sets > 0 {
		return false
	}
	for s := range ns.Group().Selections() {
		if s.Use.addrs != nil {
			return true
		}
	}
	return false
}

// counts are the prefixes that a network set counts with: those that cover it, if it is left out.
func (ns *networkSet) counts() []netip.Prefix {
	if ns.isLeftOut() {
		return ns.Value.covering()
	}
	return ns.Value.extra.nets.list()
}
