package classes

// A dataplane may have room for few classes. So it can be asked what classes the next Diff leads to, before any of them has a number.

// Crowd returns the classes that there will be after the next Diff if these are more than most and some are new; otherwise nil. New ones have
// the ID 0. The caller must not change their sets.
func (c *Classes) Crowd(most int) []Class {
	if len(c.trees[0].nodes)+len(c.trees[1].nodes) <= most { // each class but those without sets has a prefix
		return nil
	}
	next := upcoming{left: map[uint32]int{}, reached: map[uint32]bool{None4: true, None6: true}, fresh: [2]map[listID]bool{{}, {}}}
	for f := range c.trees {
		c.upcoming(f, 0, 0, false, &next)
	}
	if len(next.fresh[0])+len(next.fresh[1]) == 0 {
		return nil
	}
	var all []Class
	for class := range c.All().All() {
		if next.reached[class.ID] || c.byID[class.ID].entries > next.left[class.ID] {
			all = append(all, class)
		}
	}
	for f, lists := range next.fresh {
		for list := range lists {
			all = append(all, Class{Family: uint8(4 + 2*f), Sets: c.lists.sets(list)})
		}
	}
	if len(all) <= most {
		return nil
	}
	return all
}

// upcoming is what the next Diff does to classes.
type upcoming struct {
	left    map[uint32]int  // how many entries leave a class
	reached map[uint32]bool // an entry comes to be in the class
	fresh   [2]map[listID]bool
}

// upcoming visits the prefixes as Diff does.
func (c *Classes) upcoming(f int, i uint32, list listID, force bool, next *upcoming) {
	n := &c.trees[f].nodes[i]
	force = force || n.state&nodeDirty != 0
	if !force && n.state&nodeBelow == 0 {
		return
	}
	own := c.part(n.own)
	list = c.lists.union(list, own)
	if force {
		if n.state&nodePresent != 0 {
			next.left[n.class]++
		}
		if own != 0 || n.marks != 0 {
			if id, ok := c.byList[f][list]; ok {
				next.reached[id] = true
			} else {
				next.fresh[f][list] = true
			}
		}
	}
	for _, d := range n.down {
		if d != 0 {
			c.upcoming(f, d, list, force, next)
		}
	}
}

// Lower has classes change their number if it is room or higher, as far as lower ones are free: their prefixes are looked at by the next Diff,
// which gives those that come first the lowest numbers.
func (c *Classes) Lower(room uint32) {
	if c.Highest() < room {
		return
	}
	leaving, free := map[uint32]bool{}, c.ids.FreeBelow(room)
	for id := room; id <= c.Highest() && len(leaving) < free; id++ {
		if s := c.byID[id]; s.used && s.entries > 0 && c.byList[s.family][s.list] == id {
			delete(c.byList[s.family], s.list)
			leaving[id] = true
		}
	}
	if len(leaving) == 0 {
		return
	}
	for _, t := range c.trees {
		for i := range t.nodes {
			if n := &t.nodes[i]; n.state&nodePresent != 0 && leaving[n.class] {
				t.dirty(uint32(i))
			}
		}
	}
}
