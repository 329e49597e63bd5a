package plan

import (
	"maps"
	"slices"

	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/model"
)

// A dataplane may have room for few classes, which all endpoints share. Their number is no sum: sets of two policies that divide each other's
// addresses have as many classes as the product. So before addresses move, it is counted how many classes there would be. If that leaves less
// than an eighth of the room, which is for pods that come, programs are refused whose policies have made the sets. If it leaves less than half of
// that, programs that judge packets are, too: addresses may need their old class and the new one for a moment.

// crowd has the policies that were refused for that, and says when they are tried again. The zero value is no limit.
type crowd struct {
	room    int         // classes that the dataplane has room for; 0: any number
	assured int         // combinations of the sets of one namespace's policies, which are not refused for others' once they are enforced
	refused []*crowding // in the order in which they were
	known   map[*program][]madeBy
	owners  map[model.SetID]string // namespaces of refused policies, by the sets that these refer to
	changed map[string]int         // by namespace: changes of these sets, by which they may have fewer combinations
}

// crowding is why and until when a variant of a policy is refused.
type crowding struct {
	foldVariant
	added     int    // classes that went with it and with those that were refused at once
	left      int    // classes that there were without them
	namespace string // of the policies that have made its sets
	seen      int    // changes of that namespace's sets, when it was refused
	since     uint64 // the plan that refused it
}

// mostPatience bounds how many plans or changes a policy waits that has been refused again and again.
const mostPatience = 1 << 12

// leastAssured is for a dataplane with very little room.
const leastAssured = 8

func newCrowd(b Budget) *crowd {
	return &crowd{room: b.Room, assured: max(b.Assured.Classes, leastAssured), known: map[*program][]madeBy{}, owners: map[model.SetID]string{}, changed: map[string]int{}}
}

// most is how many classes there may be without policies being refused.
func (c *crowd) most() int { return c.room - c.room/8 }

// full is how many there may be without pods being closed whose policies are in force.
func (c *crowd) full() int { return c.room - c.room/16 }

// mostAgain is how many there may be with a policy that was refused before.
func (c *crowd) mostAgain() int { return c.room - c.room/4 }

// lower moves classes that the dataplane has no room for to lower numbers that have become free.
func (c *crowd) lower(all *classes.Classes) {
	if c.room > 0 {
		all.Lower(uint32(c.room))
	}
}

// note counts a change of a set that may make combinations fewer.
func (c *crowd) note(id model.SetID, change *model.SetChange) {
	if !change.Gone && len(change.Removed) == 0 {
		return
	}
	if namespace, is := c.owners[id]; is {
		c.changed[namespace]++
	}
}

// isDue reports whether there is room for it in a plan that begins with so many classes. It may add fewer beside those that are left.
func (of *crowding) isDue(now, room int, plan uint64) bool {
	return (of.added <= room || now <= of.left-of.left/4) && plan-of.since > of.patience
}

// wantsPlan reports whether the next plan can do something without any change: there is room for a policy that was refused, or for classes
// with numbers beyond the room. dropped: some classes have gone.
func (c *crowd) wantsPlan(all *classes.Classes, plan uint64, dropped bool) bool {
	if c.room == 0 {
		return false
	}
	now := all.Len()
	due := func(of *crowding) bool { return of.isDue(now, c.mostAgain()-now, plan+1) }
	return dropped && all.Highest() >= uint32(c.room) || slices.ContainsFunc(c.refused, due)
}

// readmit lets refused policies be tried for which there is room by now, or whose sets have changed. The more often that fails, the
// more plans it takes, or changes.
func (p *planner) readmit() {
	c := p.c
	if len(c.crowd.refused) == 0 {
		return
	}
	now := c.classes.Len()
	room := c.crowd.mostAgain() - now
	folds := map[*fold]bool{}
	c.crowd.refused = slices.DeleteFunc(c.crowd.refused, func(of *crowding) (ended bool) {
		switch {
		case c.policies.folds[of.policy] != of.fold:
			return true
		case of.isDue(now, room, c.pace.plan()):
			room -= of.added
		case uint64(c.crowd.changed[of.namespace]-of.seen) <= of.patience:
			return false
		}
		of.err, of.patience = nil, min(2*of.patience+1, mostPatience)
		folds[of.fold] = true
		return true
	})
	if len(c.crowd.refused) == 0 {
		clear(c.crowd.owners)
		clear(c.crowd.changed)
	}
	if len(folds) == 0 {
		return
	}
	for id, e := range c.endpoints.list {
		if folds[e.desired.folds[0]] || folds[e.desired.folds[1]] {
			c.endpoints.stale[id] = true
		}
	}
}

// limitClasses refuses programs if addresses would have too many classes. It is called when sets are open and no address has moved.
func (p *planner) limitClasses() {
	c := p.c
	if c.crowd.room == 0 {
		return
	}
	maps.DeleteFunc(c.crowd.known, func(prog *program, _ []madeBy) bool { return prog.gone })
	all := c.classes.Crowd(c.crowd.most())
	if all == nil {
		return
	}
	a := authorsOf(c.programs.all(), c.endpoints.judging(), c.crowd.known)
	if !a.somePending && len(all) <= c.crowd.full() {
		return
	}
	var refused []*crowding
	total, shares := classes.Shares(all, a.of, len(a.list))
	left := total
	for batch := 1; left > c.crowd.most(); batch *= 2 {
		had, some := p.refuseMost(a, shares, left, batch)
		if !some {
			break // there is room for the others, or what is left is of pods, or of policies that belong to no namespace
		}
		refused = append(refused, had...)
		left, shares = classes.Shares(all, a.of, len(a.list))
	}
	c.classes.Hide(p.hidden...)
	for _, of := range refused { // several may have made the same classes
		of.added, of.left, of.since = total-left, left, c.pace.plan()
	}
	c.crowd.refused = append(c.crowd.refused, refused...)
}

// refuseMost refuses up to so many programs, while there would be left classes: of one author, or what does not judge packets yet of several of
// the same rank. What that leaves is counted for all of them at once, which takes a while. some: there are any.
func (p *planner) refuseMost(a *authors, shares []classes.Share, left, batch int) (had []*crowding, some bool) {
	first := rankNone
	for batch > 0 {
		by, rank := a.choose(shares, p.c.crowd.assured, left > p.c.crowd.full())
		if by < 0 || some && (rank != first || rank == rankJudging) {
			break
		}
		programs := a.last(by, batch)
		had = append(had, a.refuse(p, by, programs, a.list[by].tooMany(left, p.c.crowd.most(), shares[by].Added))...)
		first, some, batch = rank, true, batch-len(programs)
	}
	return had, some
}

// refuse refuses programs of an author.
func (a *authors) refuse(p *planner, by int, programs []*program, why error) (refused []*crowding) {
	c, namespace := p.c, a.list[by].namespace
	reasons := map[*program]error{}
	for _, prog := range programs {
		reasons[prog] = why
		prog.crowds = a.judging[prog]
		for _, num := range prog.sets {
			if a.author[num] == by {
				c.crowd.owners[c.sets.Key(num)] = namespace
			}
		}
	}
	endpoints, had := c.assigned.refuse(reasons)
	p.stale = append(p.stale, endpoints...)
	slices.SortFunc(p.stale, func(x, y *endpoint) int { return x.id.Compare(y.id) })
	p.stale = slices.Compact(p.stale)
	for _, v := range had {
		refused = append(refused, &crowding{foldVariant: v, namespace: namespace, seen: c.crowd.changed[namespace]})
	}
	p.hidden = append(p.hidden, c.sets.uses.hide(a.leave(programs))...)
	return refused
}

// hide notes that sets make no classes any more that were opened for refused programs, and returns those that did. No program refers to them.
func (s *setUses) hide(sets []uint32) (named []uint32) {
	for _, num := range sets {
		if u := s.get(num); u != nil && u.named {
			u.hidden = true
			named = append(named, num)
		}
	}
	return named
}

// judging are the programs that judge packets now.
func (s *endpoints) judging() map[*program]bool {
	all := map[*program]bool{}
	for e := range maps.Values(s.list) {
		for _, prog := range e.applied.programs {
			if prog != nil {
				all[prog] = true
			}
		}
	}
	return all
}
