package classes

import (
	"net/netip"
	"slices"
)

// Adopt takes over classes and entries from a kernel, for a Classes that has none. Classes without entries are
// forgotten: whether every table has a row for them is not known. Their ids are not used before the next Drop. Entries whose
// class is not among the classes stay as they are until MoveUnknown.
func (c *Classes) Adopt(classes []Class, addrs []AddrChange) {
	c.moving = false
	families := map[uint32]int{}
	var taken []uint32
	addrs = slices.DeleteFunc(slices.Clone(addrs), func(a AddrChange) bool { return !a.Prefix.IsValid() })
	for _, a := range addrs {
		families[a.Class] = treeOf(a.Prefix.Addr())
		if a.Class >= 2 {
			taken = append(taken, a.Class)
		}
	}
	for _, class := range classes {
		if class.ID < 2 {
			continue
		}
		taken = append(taken, class.ID)
		f, used := families[class.ID]
		c.adopt(class, f, used)
	}
	c.claim(taken)
	for _, a := range addrs {
		f, i, _ := c.node(a.Prefix, true)
		n := &c.trees[f].nodes[i]
		n.class, n.flags = a.Class, uint8(a.Flags)
		n.state |= nodePresent
		c.adoptEntry(a.Class, f)
	}
}

// Keep makes an adopted prefix a member of those of its class's sets that are going, and has it looked at.
func (c *Classes) Keep(p netip.Prefix, going map[uint32]bool) {
	f, i, ok := c.node(p, false)
	if !ok {
		return
	}
	t := c.trees[f]
	n := &t.nodes[i]
	for _, set := range c.setsOf(n.class) {
		if going[set] {
			n.own = c.lists.with(n.own, set)
			c.set(set).members++
		}
	}
	t.dirty(i)
	c.hollow[f] = append(c.hollow[f], i)
}

// MoveUnknown has the next Diff move the adopted entries of unknown classes, and reports whether there are any. It is for the time after
// the first plan: their tables judge them rightly until that binds endpoints to others. In the classes that they would get before, the
// sets that only those tables refer to would be missing.
func (c *Classes) MoveUnknown() bool {
	if c.moving {
		return false
	}
	c.moving = true
	some := false
	for f, entries := range c.unmoved {
		for _, i := range entries {
			if c.trees[f].nodes[i].state&nodeFree == 0 {
				c.trees[f].dirty(i)
				some = true
			}
		}
	}
	c.unmoved = [2][]uint32{}
	return some
}
