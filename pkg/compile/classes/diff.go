package classes

import (
	"cmp"
	"net/netip"
	"slices"
)

// Move is one write of an address entry. From and To are the classes that a lookup of an address that is in this
// prefix, and in no entry's inside it, gives before and after all moves of the same Diff.
type Move struct {
	AddrChange
	From, To uint32
}

// pending is an entry as it shall be.
type pending struct {
	node    uint32
	from    uint32 // the class that is found there now
	class   uint32
	flags   uint8
	present bool
	was     bool // present now
}

// Diff returns the writes that make the kernel's entries what Add, Remove and so on have asked for since the last
// call, and takes them as done. Their order is such that at any time every address has either its old class or its
// new one: new entries come first, innermost first, and entries that go come last, outermost first. Neighbours of the
// same length that are both Gone or both not may be written in any order, so in one batch.
func (c *Classes) Diff() []Move {
	var fresh, same, gone []Move
	for f, t := range c.trees {
		var todo []pending
		c.visit(f, 0, 0, 0, false, &todo)
		for k := range todo {
			todo[k].from = c.found(f, todo[k].node)
		}
		for _, p := range todo {
			c.commit(f, p)
		}
		for _, p := range todo {
			m := Move{AddrChange: c.change(f, p), From: p.from, To: c.found(f, p.node)}
			switch {
			case !p.was:
				fresh = append(fresh, m)
			case p.present:
				same = append(same, m)
			default:
				gone = append(gone, m)
			}
		}
		for _, i := range c.hollow[f] {
			t.prune(i)
		}
		c.hollow[f] = nil
	}
	length := func(a, b Move) int { return cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()) }
	for _, list := range [][]Move{fresh, same} {
		slices.SortStableFunc(list, func(a, b Move) int { return length(b, a) })
	}
	slices.SortStableFunc(gone, length)
	if c.lists.full() {
		c.sweep()
	}
	return slices.Concat(fresh, same, gone)
}

// visit collects the entries that differ from what they shall be, in the part of the tree below the node that is
// dirty. list and m are what the surrounding nodes contribute.
func (c *Classes) visit(f int, i uint32, list listID, m Marks, force bool, todo *[]pending) {
	n := &c.trees[f].nodes[i]
	force = force || n.state&nodeDirty != 0
	if !force && n.state&nodeBelow == 0 {
		return
	}
	own := c.part(n.own)
	list = c.lists.union(list, own)
	if force {
		p := pending{node: i, present: own != 0 || n.marks != 0, was: n.state&nodePresent != 0}
		if p.present {
			p.class, p.flags = c.classOf(f, list), uint8((m | n.marks).Flags())
		}
		if p.present != p.was || p.present && (p.class != n.class || p.flags != n.flags || n.state&nodeTouched != 0) {
			*todo = append(*todo, p)
		}
	}
	n.state &^= nodeDirty | nodeBelow | nodeTouched
	m |= n.marks
	for _, d := range n.down {
		if d != 0 {
			c.visit(f, d, list, m, force, todo)
		}
	}
}

// part returns those sets of the list that are shown.
func (c *Classes) part(l listID) listID {
	if l == 0 {
		return 0
	}
	to, ok := c.parts[l]
	if !ok {
		to = c.lists.intern(slices.DeleteFunc(slices.Clone(c.lists.sets(l)), func(s uint32) bool {
			return !c.set(s).shown
		}))
		c.parts[l] = to
	}
	return to
}

// classOf returns the class of these sets, a new one if there is none.
func (c *Classes) classOf(f int, l listID) uint32 {
	if id, ok := c.byList[f][l]; ok {
		return id
	}
	id := c.ids.Acquire()
	c.define(id, f, l)
	c.created = append(c.created, id)
	return id
}

func (c *Classes) define(id uint32, f int, l listID) {
	c.place(id, classState{family: f, list: l, used: true})
	c.byList[f][l] = id
}

func (c *Classes) place(id uint32, s classState) {
	for uint32(len(c.byID)) <= id {
		c.byID = append(c.byID, classState{})
	}
	c.byID[id] = s
	c.all = nil
}

// found returns the class that a lookup at the node finds now.
func (c *Classes) found(f int, i uint32) uint32 {
	t := c.trees[f]
	for {
		switch n := &t.nodes[i]; {
		case n.state&nodePresent != 0:
			return n.class
		case i == 0:
			return uint32(f) // None4, None6
		default:
			i = n.up
		}
	}
}

func (c *Classes) commit(f int, p pending) {
	n := &c.trees[f].nodes[p.node]
	if p.present {
		c.byID[p.class].entries++
	}
	if p.was {
		c.byID[n.class].entries--
		c.idle = append(c.idle, n.class)
	}
	n.class, n.flags = p.class, p.flags
	n.state &^= nodePresent
	if p.present {
		n.state |= nodePresent
	}
}

func (c *Classes) change(f int, p pending) AddrChange {
	t := c.trees[f]
	a := AddrChange{Prefix: t.prefix(&t.nodes[p.node]), Class: p.class, Flags: AddrFlags(p.flags), Gone: !p.present}
	if t.nodes[p.node].marks&MarkEndpoint != 0 {
		a.Endpoint = c.owners[a.Prefix]
	}
	return a
}

// sweep drops the lists that neither a prefix nor a class has.
func (c *Classes) sweep() {
	used := make([]bool, len(c.lists.lists))
	for _, t := range c.trees {
		for i := range t.nodes {
			used[t.nodes[i].own] = true
		}
	}
	for _, s := range c.byID {
		used[s.list] = true
	}
	clear(c.parts)
	c.lists.sweep(func(l listID) bool { return used[l] })
}

// Created returns the classes made since the last call, by ascending id.
func (c *Classes) Created() []Class {
	slices.Sort(c.created)
	var all []Class
	for _, id := range c.created {
		class, _ := c.Class(id)
		all = append(all, class)
	}
	c.created = nil
	return all
}

// Drop removes the classes that no entry has any more and returns their ids, ascending. Reuse makes them available.
func (c *Classes) Drop() []uint32 {
	slices.Sort(c.idle)
	var gone []uint32
	for _, id := range slices.Compact(c.idle) {
		s := c.byID[id]
		if id < 2 || !s.used || s.entries > 0 {
			continue
		}
		if c.byList[s.family][s.list] == id {
			delete(c.byList[s.family], s.list)
		}
		c.byID[id] = classState{}
		c.all = nil
		c.ids.Release(id)
		gone = append(gone, id)
	}
	c.idle = nil
	return gone
}

// Reuse makes the ids of dropped classes available for new ones, but for those that are held.
func (c *Classes) Reuse() { c.ids.ReuseBut(c.held) }

// Hold keeps the ids of classes from being used again, until the next call. The map must not be changed meanwhile.
func (c *Classes) Hold(classes map[uint32]bool) { c.held = classes }

// Local returns the local endpoints' addresses whose sets changed since the last call; all: any address's may have.
func (c *Classes) Local() (some []netip.Prefix, all bool) {
	some, all = c.local, c.wide
	c.local, c.wide = nil, false
	return some, all
}
