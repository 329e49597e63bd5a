// Package classes divides the addresses into classes: those of one class are members of exactly the same sets, so that no
// rule can tell them apart. It says which address entries a kernel needs for that, and in which order to write them.
package classes

import (
	"net/netip"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/model"
)

// Marks are properties of a prefix besides its sets. They hold for the prefixes inside it, too.
type Marks uint8

const (
	MarkEndpoint Marks = 1 << iota // a local endpoint's own address; on single addresses only
	MarkService                    // in model.SetServiceAddrs
	MarkNode                       // in model.SetNodeAddrs
	MarkHost                       // given by the dataplane as an address of this node
	MarkOwned                      // in model.SetOwnedAddrs
)

func (m Marks) Flags() AddrFlags {
	var f uint32
	if m&MarkEndpoint != 0 {
		f |= bpf.AddrEndpoint
	}
	if m&MarkService != 0 {
		f |= bpf.AddrMayTranslate
	}
	if m&MarkOwned != 0 {
		f |= bpf.AddrOwned
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
	members
	registry
	lists  *setLists // of both
	owners map[netip.Prefix]model.EndpointID

	unmoved [2][]uint32 // by tree: entries of unknown classes, which Diff leaves as they are until MoveUnknown
	moving  bool        // MoveUnknown was called, or nothing was adopted
	moves   []Move      // space for those of Diff
}

// New returns the classes of a kernel without address entries.
func New() *Classes {
	lists := newSetLists()
	return &Classes{members: newMembers(lists), registry: newRegistry(lists), lists: lists, owners: map[netip.Prefix]model.EndpointID{}, moving: true}
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
