// Package classes divides the addresses into classes: those of one class are members of exactly the same sets, so that no
// rule can tell them apart. It says which address entries a kernel needs for that, and in which order to write them.
package classes

import (
	"net/netip"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/compile/ids"
	"github.com/margay-project/margay/pkg/model"
)

// Marks are what is known of a prefix besides its sets. They hold for the prefixes inside it, too.
type Marks uint8

const (
	MarkEndpoint Marks = 1 << iota // a local endpoint's own address; on single addresses only
	MarkService                    // in model.SetServiceAddrs
	MarkNode                       // in model.SetNodeAddrs
	MarkHost                       // given by the dataplane as an address of this node
)

func (m Marks) Flags() AddrFlags {
	var f uint32
	if m&MarkEndpoint != 0 {
		f |= bpf.AddrEndpoint
	}
	if m&MarkService != 0 {
		f |= bpf.AddrMayTranslate
	}
	if m&(MarkNode|MarkHost) != 0 {
		f |= bpf.AddrHost
	}
	return AddrFlags(f)
}

// Classes turns sets and their members into the class of every address, and knows which entries the kernel has. A
// prefix has an entry if it is a member of a shown set or is marked; the entry's class is that of all shown sets that
// the prefix or one around it is in, because a lookup finds nothing but the innermost entry. Not safe for concurrent
// use.
type Classes struct {
	trees  [2]*tree // IPv4, IPv6
	lists  *setLists
	sets   map[uint32]*setState
	parts  map[listID]listID // a list -> those of its sets that are shown; void when that changes
	byID   []classState
	all    []Class              // see All; nil: to be made
	byList [2]map[listID]uint32 // the sets of a class -> its id
	ids    ids.Pool
	held   map[uint32]bool // ids not to be used again yet
	owners map[netip.Prefix]model.EndpointID
	hollow [2][]uint32 // nodes that may have become superfluous

	created []uint32 // since the last call of Created
	idle    []uint32 // may have no entries any more
	// Since the last call of Local: local endpoints' addresses that joined or left a set, and whether a prefix did that
	// may have others inside it.
	local []netip.Prefix
	wide  bool
}

type setState struct {
	members int
	shown   bool // entries tell its members apart
}

type classState struct {
	family  int // index in trees
	list    listID
	entries int
	used    bool // the id is taken
}

// New returns the classes of a kernel without address entries.
func New() *Classes {
	c := &Classes{
		trees:  [2]*tree{newTree(false), newTree(true)},
		lists:  newSetLists(),
		sets:   map[uint32]*setState{},
		parts:  map[listID]listID{},
		byID:   []classState{{family: 0, used: true}, {family: 1, used: true}},
		byList: [2]map[listID]uint32{{0: None4}, {0: None6}},
		ids:    ids.NewPool(2, 1<<31),
		owners: map[netip.Prefix]model.EndpointID{},
	}
	return c
}

// treeOf returns the index of the address's family in Classes.trees, which also is the id of its class without sets.
func treeOf(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

func (c *Classes) set(num uint32) *setState {
	s := c.sets[num]
	if s == nil {
		s = &setState{}
		c.sets[num] = s
	}
	return s
}

// node returns the prefix's node and the index of its tree. If there is none it is made, or ok is false.
func (c *Classes) node(p netip.Prefix, insert bool) (f int, i uint32, ok bool) {
	if !p.IsValid() {
		return 0, 0, false
	}
	f = treeOf(p.Addr())
	k, length := keyOf(p.Addr()).mask(uint8(p.Bits())), uint8(p.Bits())
	if insert {
		return f, c.trees[f].insert(k, length), true
	}
	i, ok = c.trees[f].find(k, length)
	return f, i, ok
}

// Add makes the prefix a member of the set. Here and elsewhere an invalid prefix changes nothing.
func (c *Classes) Add(p netip.Prefix, set uint32) {
	f, i, ok := c.node(p, true)
	if !ok {
		return
	}
	t := c.trees[f]
	if own := c.lists.with(t.nodes[i].own, set); own != t.nodes[i].own {
		t.nodes[i].own = own
		c.set(set).members++
		c.changed(f, i, set)
	}
}

// Remove takes the prefix out of the set.
func (c *Classes) Remove(p netip.Prefix, set uint32) {
	f, i, ok := c.node(p, false)
	t := c.trees[f]
	if !ok || !c.lists.has(t.nodes[i].own, set) {
		return
	}
	t.nodes[i].own = c.lists.without(t.nodes[i].own, set)
	c.set(set).members--
	c.hollow[f] = append(c.hollow[f], i)
	c.changed(f, i, set)
}

// changed notes that a node joined or left a set.
func (c *Classes) changed(f int, i, set uint32) {
	t := c.trees[f]
	if c.set(set).shown {
		t.dirty(i)
	}
	switch n := &t.nodes[i]; {
	case n.bits != t.full:
		c.wide = true
	case n.marks&MarkEndpoint != 0:
		c.local = append(c.local, t.prefix(n))
	}
}

// Mark sets or clears marks of a prefix.
func (c *Classes) Mark(p netip.Prefix, m Marks, on bool) {
	f, i, ok := c.node(p, on)
	if !ok {
		return
	}
	t := c.trees[f]
	was := t.nodes[i].marks
	if on {
		t.nodes[i].marks |= m
	} else {
		t.nodes[i].marks &^= m
		c.hollow[f] = append(c.hollow[f], i)
	}
	if t.nodes[i].marks != was {
		t.dirty(i)
	}
}

// Own says which local endpoint an address belongs to; its entry is written again even if only that changed.
func (c *Classes) Own(p netip.Prefix, owner model.EndpointID) {
	c.Mark(p, MarkEndpoint, true)
	c.owners[p] = owner
	if f, i, ok := c.node(p, false); ok {
		c.trees[f].nodes[i].state |= nodeTouched
		c.trees[f].dirty(i)
	}
}

// Disown says that an address belongs to no local endpoint any more.
func (c *Classes) Disown(p netip.Prefix) {
	c.Mark(p, MarkEndpoint, false)
	delete(c.owners, p)
}

// Members returns the sets that the address is in, shown or not, ascending.
func (c *Classes) Members(a netip.Addr) []uint32 {
	var all listID
	c.trees[treeOf(a)].around(keyOf(a), func(n *node) { all = c.lists.union(all, n.own) })
	return c.lists.sets(all)
}

// Lookup returns the entry that the kernel finds for the address, or one without prefix if there is none.
func (c *Classes) Lookup(a netip.Addr) AddrChange {
	t := c.trees[treeOf(a)]
	n := &t.nodes[t.longest(keyOf(a), t.full, func(n *node) bool { return n.state&nodePresent != 0 })]
	if n.state&nodePresent == 0 {
		return AddrChange{Class: uint32(treeOf(a))}
	}
	p := t.prefix(n)
	return AddrChange{Prefix: p, Class: n.class, Flags: AddrFlags(n.flags), Endpoint: c.owners[p]}
}

// Around returns the class of the innermost entry around a prefix that is not missing; its own does not count.
func (c *Classes) Around(p netip.Prefix, missing func(netip.Prefix) bool) uint32 {
	f := treeOf(p.Addr())
	t := c.trees[f]
	k, length := keyOf(p.Addr()).mask(uint8(p.Bits())), uint8(p.Bits())
	i := t.longest(k, length, func(n *node) bool {
		return n.state&nodePresent != 0 && n.bits < length && !missing(t.prefix(n))
	})
	if n := &t.nodes[i]; n.state&nodePresent != 0 && n.bits < length && !missing(t.prefix(n)) {
		return n.class
	}
	return uint32(f) // None4, None6
}

// Len returns how many sets of sets have a class, the two without sets included.
func (c *Classes) Len() int { return len(c.byList[0]) + len(c.byList[1]) }

// Class returns a class by its id; not ok if there is none.
func (c *Classes) Class(id uint32) (Class, bool) {
	if id >= uint32(len(c.byID)) || !c.byID[id].used {
		return Class{}, false
	}
	s := c.byID[id]
	return Class{ID: id, Family: uint8(4 + 2*s.family), Sets: c.lists.sets(s.list)}, true
}

// All returns every class, by ascending id. The caller must not change the slice; it stays as it is when classes come and
// go.
func (c *Classes) All() []Class {
	if c.all != nil {
		return c.all
	}
	c.all = make([]Class, 0, len(c.byID))
	for id := range c.byID {
		if class, ok := c.Class(uint32(id)); ok {
			c.all = append(c.all, class)
		}
	}
	return c.all
}
