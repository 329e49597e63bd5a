package compile

import "slices"

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

// Empty removes all members of the sets.
func (c *Classes) Empty(sets ...uint32) {
	c.scan(sets, true)
	for _, n := range sets {
		c.set(n).members = 0
	}
}

// scan marks the members of the sets as dirty, and takes them out if forget. It looks at every node, once for all of
// the sets; without members it does nothing.
func (c *Classes) scan(sets []uint32, forget bool) {
	sets = slices.DeleteFunc(slices.Clone(sets), func(n uint32) bool { return c.set(n).members == 0 })
	if len(sets) == 0 {
		return
	}
	left := map[listID]listID{} // a list -> without the sets
	for f, t := range c.trees {
		for i := range t.nodes {
			n := &t.nodes[i]
			if n.own == 0 {
				continue
			}
			to, ok := left[n.own]
			if !ok {
				to = n.own
				for _, s := range sets {
					to = c.lists.without(to, s)
				}
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

// clear removes marks from every prefix.
func (c *Classes) clear(m marks) {
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
