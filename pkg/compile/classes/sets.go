package classes

import (
	"net/netip"
	"slices"
)

// Show makes entries tell members of the sets apart.
func (c *Classes) Show(sets ...uint32) {
	var old []uint32
	for _, n := range sets {
		s := c.set(n)
		if !s.shown && s.members > 0 {
			old = append(old, n)
		}
		s.shown = true
	}
	clear(c.parts)
	c.scan(old, false)
}

// Hide ends that, for sets nothing in the kernel refers to any more.
func (c *Classes) Hide(sets ...uint32) {
	clear(c.parts)
	c.scan(sets, false)
	for _, n := range sets {
		if s := c.set(n); s.members > 0 {
			s.shown = false
		} else {
			delete(c.sets, n)
		}
	}
}

// Leave takes a prefix out of a set that no local side is judged by.
func (c *Classes) Leave(p netip.Prefix, set uint32) {
	some, all := c.local, c.wide
	c.Remove(p, set)
	c.local, c.wide = some, all
}

// Empty removes all members of the sets.
func (c *Classes) Empty(sets ...uint32) {
	c.scan(sets, true)
	for _, n := range sets {
		if s := c.set(n); s.shown {
			s.members = 0
		} else {
			delete(c.sets, n)
		}
	}
}

// scan marks the members of the sets as dirty, and takes them out if forget. It looks at every node, once for all of
// the sets; without members it does nothing.
func (c *Classes) scan(sets []uint32, forget bool) {
	sets = slices.DeleteFunc(slices.Clone(sets), func(n uint32) bool { return c.set(n).members == 0 })
	if len(sets) == 0 {
		return
	}
	slices.Sort(sets)
	left := map[listID]listID{} // a list -> without the sets
	for f, t := range c.trees {
		for i := range t.nodes {
			n := &t.nodes[i]
			if n.own == 0 {
				continue
			}
			to, ok := left[n.own]
			if !ok {
				to = c.lists.minus(n.own, sets)
				left[n.own] = to
			}
			if to == n.own {
				continue
			}
			t.dirty(uint32(i))
			if forget {
				n.own = to
				c.hollow[f] = append(c.hollow[f], uint32(i))
			}
		}
	}
}

// Unmark removes marks from every prefix.
func (c *Classes) Unmark(m Marks) {
	for f, t := range c.trees {
		for i := range t.nodes {
			if n := &t.nodes[i]; n.marks&m != 0 {
				n.marks &^= m
				t.dirty(uint32(i))
				c.hollow[f] = append(c.hollow[f], uint32(i))
			}
		}
	}
}

// Differ reports whether the classes differ in their family or in one of the sets.
func (c *Classes) Differ(a, b uint32, sets []uint32) bool {
	x, y := c.byID[a], c.byID[b]
	return x.family != y.family || slices.ContainsFunc(sets, func(s uint32) bool {
		return c.lists.has(x.list, s) != c.lists.has(y.list, s)
	})
}

// Adopt takes over classes and entries from a kernel, for a Classes that has none. Classes without entries are
// forgotten: whether every table has a row for them is not known. Their ids are not used before the next Drop.
func (c *Classes) Adopt(classes []Class, addrs []AddrChange) {
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
		list := c.lists.intern(class.Sets)
		if _, twin := c.byList[f][list]; twin || !used { // a twin's entries go to the other one
			c.place(class.ID, classState{family: f, list: list, used: true})
		} else {
			c.define(class.ID, f, list)
		}
		c.idle = append(c.idle, class.ID)
	}
	c.ids.Claim(taken)
	for _, a := range addrs {
		f, i, _ := c.node(a.Prefix, true)
		n := &c.trees[f].nodes[i]
		n.class, n.flags = a.Class, uint8(a.Flags)
		n.state |= nodePresent
		if a.Class >= uint32(len(c.byID)) || !c.byID[a.Class].used { // a class without sets, to be left
			c.place(a.Class, classState{family: f, used: true})
			c.idle = append(c.idle, a.Class)
		}
		c.byID[a.Class].entries++
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
	for _, set := range c.lists.sets(c.byID[n.class].list) {
		if going[set] {
			n.own = c.lists.with(n.own, set)
			c.set(set).members++
		}
	}
	t.dirty(i)
	c.hollow[f] = append(c.hollow[f], i)
}
