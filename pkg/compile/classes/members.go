package classes

import (
	"net/netip"
	"slices"
)

// members knows which prefixes are members of which sets, how they are marked, and which entries the kernel has.
type members struct {
	trees  [2]*tree // IPv4, IPv6
	lists  *setLists
	sets   map[uint32]*setState
	parts  map[listID]listID // a list -> those of its sets that are shown; void when that changes
	hollow [2][]uint32       // nodes that may have become superfluous
	// Since the last call of Local: local endpoints' addresses that joined or left a set, and whether a prefix did that
	// may have others inside it.
	local []netip.Prefix
	wide  bool
}

type setState struct {
	members int
	shown   bool // entries tell its members apart
}

func newMembers(lists *setLists) members {
	return members{
		trees: [2]*tree{newTree(false), newTree(true)},
		lists: lists,
		sets:  map[uint32]*setState{},
		parts: map[listID]listID{},
	}
}

// treeOf returns the index of the address's family in members.trees, which also is the id of its class without sets.
func treeOf(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

func (ms *members) set(num uint32) *setState {
	s := ms.sets[num]
	if s == nil {
		s = &setState{}
		ms.sets[num] = s
	}
	return s
}

// node returns the prefix's node and the index of its tree. If there is none it is made, or ok is false.
func (ms *members) node(p netip.Prefix, insert bool) (f int, i uint32, ok bool) {
	if !p.IsValid() {
		return 0, 0, false
	}
	f = treeOf(p.Addr())
	k, length := keyOf(p.Addr()).mask(uint8(p.Bits())), uint8(p.Bits())
	if insert {
		return f, ms.trees[f].insert(k, length), true
	}
	i, ok = ms.trees[f].find(k, length)
	return f, i, ok
}

// Add makes the prefix a member of the set. Here and elsewhere an invalid prefix changes nothing.
func (ms *members) Add(p netip.Prefix, set uint32) {
	f, i, ok := ms.node(p, true)
	if !ok {
		return
	}
	t := ms.trees[f]
	if own := ms.lists.with(t.nodes[i].own, set); own != t.nodes[i].own {
		t.nodes[i].own = own
		ms.set(set).members++
		ms.changed(f, i, ms.isShown(set))
	}
}

// Remove takes the prefix out of the set.
func (ms *members) Remove(p netip.Prefix, set uint32) {
	f, i, ok := ms.node(p, false)
	t := ms.trees[f]
	if !ok || !ms.lists.has(t.nodes[i].own, set) {
		return
	}
	t.nodes[i].own = ms.lists.without(t.nodes[i].own, set)
	ms.set(set).members--
	ms.hollow[f] = append(ms.hollow[f], i)
	ms.changed(f, i, ms.isShown(set))
}

// changed notes that a node joined or left sets, some of them shown or none.
func (ms *members) changed(f int, i uint32, shown bool) {
	t := ms.trees[f]
	if shown {
		t.dirty(i)
	}
	switch n := &t.nodes[i]; {
	case n.bits != t.full:
		ms.wide = true
	case n.marks&MarkEndpoint != 0:
		ms.local = append(ms.local, t.prefix(n))
	}
}

// Inside returns prefixes inside p, itself apart, that are members of sets or marked, or have entries: up to so many of them.
func (ms *members) Inside(p netip.Prefix, most int) []netip.Prefix {
	f, k, length := treeOf(p.Addr()), keyOf(p.Addr()).mask(uint8(p.Bits())), uint8(p.Bits())
	t := ms.trees[f]
	at := t.longest(k, length, func(*node) bool { return true })
	var all []netip.Prefix
	todo := []uint32{at}
	if n := &t.nodes[at]; n.bits < length { // p has no node; the prefixes inside it are below one child
		todo[0] = n.down[k.bit(n.bits)]
		if todo[0] == 0 || t.nodes[todo[0]].bits <= length || t.nodes[todo[0]].mask(length) != k {
			return nil
		}
	}
	for len(todo) > 0 && len(all) < most {
		i := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		n := &t.nodes[i]
		if n.bits > length && !n.empty() {
			all = append(all, t.prefix(n))
		}
		for _, d := range n.down {
			if d != 0 {
				todo = append(todo, d)
			}
		}
	}
	return all
}

// Mark sets or clears marks of a prefix.
func (ms *members) Mark(p netip.Prefix, m Marks, on bool) {
	f, i, ok := ms.node(p, on)
	if !ok {
		return
	}
	t := ms.trees[f]
	was := t.nodes[i].marks
	if on {
		t.nodes[i].marks |= m
	} else {
		t.nodes[i].marks &^= m
		ms.hollow[f] = append(ms.hollow[f], i)
	}
	if t.nodes[i].marks != was {
		t.dirty(i)
	}
}

// Members returns the sets that the address is in, shown or not, ascending.
func (ms *members) Members(a netip.Addr) []uint32 {
	var all listID
	ms.trees[treeOf(a)].around(keyOf(a), func(n *node) { all = ms.lists.union(all, n.own) })
	return ms.lists.sets(all)
}

// part returns those sets of the list that are shown.
func (ms *members) part(l listID) listID {
	if l == 0 {
		return 0
	}
	to, ok := ms.parts[l]
	if !ok {
		to = ms.lists.intern(slices.DeleteFunc(slices.Clone(ms.lists.sets(l)), func(s uint32) bool {
			return !ms.set(s).shown
		}))
		ms.parts[l] = to
	}
	return to
}

// markLists marks the lists that prefixes have. Parts of lists are not kept.
func (ms *members) markLists(used []bool) {
	for _, t := range ms.trees {
		for i := range t.nodes {
			used[t.nodes[i].own] = true
		}
	}
	clear(ms.parts)
}

// Local returns the local endpoints' addresses whose sets changed since the last call; all: any address's may have.
func (ms *members) Local() (some []netip.Prefix, all bool) {
	some, all = ms.local, ms.wide
	ms.local, ms.wide = nil, false
	return some, all
}
