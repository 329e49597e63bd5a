package calc

import (
	"slices"

	"github.com/margay-project/margay/pkg/labelindex"
	"github.com/margay-project/margay/pkg/model"
)

// setIndex holds the definitions that rules refer to, and who pays for them. Its parts find the members of their sets, each for
// its own kinds of definitions, and count them in the setTable.
type setIndex struct {
	definitions map[definitionKey]*definition
	unused      map[*definition]struct{} // lost a user since the last flush
	spending    spending
	relief      relief
	room        *room // for what network sets and Services name

	*setTable
	selected *selectedSets
	services *serviceSets
	nodes    *nodeSets
	owned    *ownedAddrs
}

func newSetIndex() *setIndex {
	sets, room := newSetTable(), newRoom()
	sets.newSet(model.SetServiceAddrs)
	sets.newSet(model.SetNodeAddrs)
	return &setIndex{
		definitions: map[definitionKey]*definition{},
		unused:      map[*definition]struct{}{},
		spending:    newSpending(),
		relief:      newRelief(),
		setTable:    sets,
		room:        room,
		selected:    newSelectedSets(sets, room),
		services:    newServiceSets(sets, room),
		nodes:       newNodeSets(sets),
		owned:       &ownedAddrs{sets: sets, patience: ownedPatience},
	}
}

// enter counts the item into the sets its group matches; exit counts it out, before it leaves the group.
func (x *setIndex) enter(it *item) { x.countItem(it, 1) }
func (x *setIndex) exit(it *item)  { x.countItem(it, -1) }

func (x *setIndex) countItem(it *item, delta int32) {
	x.spending.count(it, int(delta))
	x.selected.countItem(it, delta)
	x.owned.countItem(it, delta)
	x.relieve()
}

// propagate counts the items of groups whose matches have changed in or out.
func (x *setIndex) propagate(changed []labelindex.Match[contents, findings]) {
	for _, m := range changed {
		x.selected.propagate(m)
		x.relieve()
	}
}

// define makes a definition. Its part has to find its members.
func (x *setIndex) define(key definitionKey) *definition {
	d := &definition{key: key, sets: map[portKey]*set{}, users: map[*ruleset]struct{}{}}
	x.definitions[key] = d
	if !key.kind.byPort() {
		x.setOf(d, portKey{})
	}
	return d
}

// undefine drops a definition no rule uses, and its sets.
func (x *setIndex) undefine(d *definition) {
	delete(x.definitions, d.key)
	for _, s := range d.sets {
		x.drop(s)
	}
	x.selected.undefine(d)
	x.services.undefine(d)
	x.nodes.undefine(d)
}

// admit counts in, where there is room now, what was left out for want of it. The rest is for later flushes.
func (x *setIndex) admit() {
	if x.room.freed {
		x.room.freed, x.services.untried, x.selected.found.untried = false, true, x.selected.found.left.Len()
	}
	x.services.admit()
	x.selected.admit()
}

// hasUntried reports whether there may be room for something that is left out.
func (x *setIndex) hasUntried() bool {
	services, networkSets := len(x.services.crowded), x.selected.found.left.Len()
	if x.room.freed {
		return services+networkSets+len(x.room.services) > 0
	}
	return x.services.untried && services > 0 || x.selected.found.untried > 0
}

// use replaces the definitions a ruleset uses.
func (x *setIndex) use(rs *ruleset, now map[*definition]struct{}) {
	for d := range now {
		if _, ok := rs.uses[d]; !ok {
			d.users[rs] = struct{}{}
			if x.spending.hold(rs.account(), d) {
				x.selected.found.join(rs.account(), d)
				if d.isShort() { // of others who pay for it; this one has room of its own, which is for the next flush
					x.room.freed = true
				}
			}
		}
	}
	for d := range rs.uses {
		if _, ok := now[d]; ok {
			continue
		}
		if x.spending.release(rs.account(), d) {
			x.selected.found.leave(rs.account(), d)
		}
		if delete(d.users, rs); len(d.users) == 0 {
			x.unused[d] = struct{}{}
		}
	}
	rs.uses = now
}

// dropUnused drops the definitions that have lost their last user.
func (x *setIndex) dropUnused() {
	for d := range x.unused {
		if len(d.users) == 0 {
			x.undefine(d)
		}
	}
	empty(&x.unused)
}

// reconcilePorts drops the sets of definitions, by port or past a limit, that have lost their last member, and returns the rulesets that
// must be built again because sets came or went.
func (x *setIndex) reconcilePorts() map[*ruleset]struct{} {
	x.selected.numbers.reconcile(x.repopulated, x.selected.labels)
	stale := map[*ruleset]struct{}{}
	for d := range x.repopulated {
		live := x.dropEmpty(d)
		x.selected.numbers.relax(d, len(live))
		if !slices.Equal(live, d.ports) {
			d.ports = live
			for rs := range d.users {
				stale[rs] = struct{}{}
			}
		}
	}
	empty(&x.repopulated)
	return stale
}
