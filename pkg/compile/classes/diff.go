package classes

import (
	"cmp"
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

// Diff returns the writes that bring the kernel's entries to the state that Add, Remove and so on have asked for since
// the last call. It counts them as done. Their order is such that at any time every address has either its old class or
// its new one: new entries come first, innermost first, and entries that go come last, outermost first. Neighbours of
// the same length that are both Gone or both not may be written in any order, so in one batch. The next call writes over the list.
func (c *Classes) Diff() []Move {
	var todo [2][]pending
	for f := range c.trees {
		todo[f] = c.differing(f)
	}
	// Very many addresses may move at once, and a Move is large: each has its place in one list from the start.
	var ends [numTurns]int
	for _, list := range todo {
		for _, p := range list {
			ends[p.turn()]++
		}
	}
	for turn := 1; turn < numTurns; turn++ {
		ends[turn] += ends[turn-1]
	}
	moves := c.spaceFor(ends[numTurns-1])
	next := [numTurns]int{fresh: 0, same: ends[fresh], gone: ends[same]}
	for f, list := range todo {
		for _, p := range list {
			at := &next[p.turn()]
			moves[*at] = Move{AddrChange: c.change(f, p), From: p.from, To: c.found(f, p.node)}
			*at++
		}
		for _, i := range c.hollow[f] {
			c.trees[f].prune(i)
		}
		c.hollow[f] = nil
	}
	length := func(a, b Move) int { return cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()) }
	slices.SortStableFunc(moves[:ends[fresh]], func(a, b Move) int { return length(b, a) })
	slices.SortStableFunc(moves[ends[fresh]:ends[same]], func(a, b Move) int { return length(b, a) })
	slices.SortStableFunc(moves[ends[same]:], length)
	if c.lists.full() {
		c.mark()
	}
	c.lists.sweep(sweptAtOnce)
	return moves
}

// mostMovesKept is how many moves there is space for from one Diff to the next.
const mostMovesKept = 1 << 12

// spaceFor is the space for so many moves, whatever is in it.
func (c *Classes) spaceFor(n int) []Move {
	if n > cap(c.moves) {
		moves := make([]Move, n)
		if n <= mostMovesKept {
			c.moves = moves
		}
		return moves
	}
	return c.moves[:n]
}

// The turns of entries in the order of writes.
const (
	fresh = iota // new
	same         // with another value
	gone
	numTurns
)

func (p pending) turn() int {
	switch {
	case !p.was:
		return fresh
	case p.present:
		return same
	}
	return gone
}

// differing returns the entries of a tree that differ from their desired value, which they have from then on.
func (c *Classes) differing(f int) (todo []pending) {
	c.visit(f, 0, 0, 0, visiting{}, &todo)
	for k := range todo {
		todo[k].from = c.found(f, todo[k].node)
	}
	for _, p := range todo {
		c.commit(f, p)
	}
	return todo
}

// visiting says what is so of a node because it is so of one around it.
type visiting struct {
	force   bool   // it is looked at
	unmoved uint32 // the class of the innermost entry around it, if that stays as it is until MoveUnknown; otherwise 0
}

// visit collects the entries that differ from their desired value, in the dirty part of the tree below the node. The
// surrounding nodes contribute list, m and so. New entries inside one of an unknown class are for MoveUnknown, too: an address there has
// been in sets that are not known. Where an entry of a known class is between them, that class has those sets (Keep).
func (c *Classes) visit(f int, i uint32, list listID, m Marks, so visiting, todo *[]pending) {
	n := &c.trees[f].nodes[i]
	so.force = so.force || n.state&nodeDirty != 0
	if !so.force && n.state&nodeBelow == 0 {
		return
	}
	was := n.state&nodePresent != 0
	unknown := !c.moving && was && c.Unknown(n.class)
	switch {
	case unknown:
		so.unmoved = n.class
	case was:
		so.unmoved = 0
	}
	own := c.part(n.own)
	list = c.lists.union(list, own)
	switch {
	case !so.force:
	case unknown:
		c.unmoved[f] = append(c.unmoved[f], i)
		c.foresee(n.class, f, list)
	case so.unmoved != 0 && !was && (own != 0 || n.marks != 0):
		c.unmoved[f] = append(c.unmoved[f], i)
		c.neverForesee(so.unmoved)
	default:
		p := pending{node: i, present: own != 0 || n.marks != 0, was: was}
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
			c.visit(f, d, list, m, so, todo)
		}
	}
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
		c.enter(p.class)
	}
	if p.was {
		c.exit(n.class)
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

// mark finds the lists that neither a prefix nor a class has.
func (c *Classes) mark() {
	used := make([]bool, len(c.lists.lists))
	c.members.markLists(used)
	c.registry.markLists(used)
	c.lists.mark(used)
}
