package classes

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// key is a masked address, left-aligned: an IPv4 address is the upper half of hi.
type key struct{ hi, lo uint64 }

func keyOf(a netip.Addr) key {
	if a.Is4() {
		b := a.As4()
		return key{hi: uint64(binary.BigEndian.Uint32(b[:])) << 32}
	}
	b := a.As16()
	return key{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

func (k key) addr(v6 bool) netip.Addr {
	if !v6 {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], uint32(k.hi>>32))
		return netip.AddrFrom4(b)
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], k.hi)
	binary.BigEndian.PutUint64(b[8:], k.lo)
	return netip.AddrFrom16(b)
}

// bit returns bit i, counted from the left.
func (k key) bit(i uint8) int {
	if i < 64 {
		return int(k.hi >> (63 - i) & 1)
	}
	return int(k.lo >> (127 - i) & 1)
}

func (k key) mask(n uint8) key {
	switch {
	case n == 0:
		return key{}
	case n <= 64:
		return key{hi: k.hi &^ (1<<(64-n) - 1)}
	case n < 128:
		return key{k.hi, k.lo &^ (1<<(128-n) - 1)}
	}
	return k
}

// common returns how many leading bits the keys share, at most 128.
func (k key) common(o key) uint8 {
	if x := k.hi ^ o.hi; x != 0 {
		return uint8(bits.LeadingZeros64(x))
	}
	return 64 + uint8(bits.LeadingZeros64(k.lo^o.lo))
}

// The bits of a node's state.
const (
	nodeDirty   uint8 = 1 << iota // its own sets or marks changed: it and all nodes inside it are looked at again
	nodeBelow                     // a node inside it is dirty
	nodePresent                   // the kernel has an entry for it: class and flags
	nodeTouched                   // its entry is written again although class and flags are the same
	nodeFree                      // it is no node at present
)

// node is a prefix in the tree of one family. Nodes without sets, marks and entry only join two branches.
type node struct {
	key
	up    uint32    // index of the surrounding node; the root's is 0
	down  [2]uint32 // by the next bit; 0: none
	own   listID    // the sets that this very prefix is a member of
	class uint32    // if nodePresent
	bits  uint8
	marks Marks
	flags uint8 // if nodePresent: AddrFlags
	state uint8
}

func (n *node) empty() bool { return n.own == 0 && n.marks == 0 && n.state&nodePresent == 0 }

// tree holds the prefixes of one family, each below those that contain it. Node 0 is the root: the prefix of length 0.
type tree struct {
	v6    bool
	full  uint8 // length of a single address
	nodes []node
	free  []uint32
	hosts map[key]uint32 // single addresses, to find them without walking down
}

func newTree(v6 bool) *tree {
	t := &tree{v6: v6, full: 32, nodes: make([]node, 1), hosts: map[key]uint32{}}
	if v6 {
		t.full = 128
	}
	return t
}

func (t *tree) prefix(n *node) netip.Prefix { return netip.PrefixFrom(n.addr(t.v6), int(n.bits)) }

// find returns the node of the prefix; not ok if there is none.
func (t *tree) find(k key, length uint8) (n uint32, ok bool) {
	if length == t.full {
		n, ok = t.hosts[k]
		return n, ok
	}
	at := t.longest(k, length, func(*node) bool { return true })
	return at, t.nodes[at].bits == length
}

// longest returns the innermost node that contains the prefix and satisfies want, or the root if none does.
func (t *tree) longest(k key, length uint8, want func(*node) bool) uint32 {
	var best, at uint32
	for {
		n := &t.nodes[at]
		if n.bits > length || n.key != k.mask(n.bits) {
			return best
		}
		if want(n) {
			best = at
		}
		if n.bits == length {
			return best
		}
		if at = n.down[k.bit(n.bits)]; at == 0 {
			return best
		}
	}
}

// around calls f for every node that contains the address, from the outermost to the innermost.
func (t *tree) around(k key, f func(*node)) {
	t.longest(k, t.full, func(n *node) bool { f(n); return false })
}

// insert returns the node of the prefix and makes it if there is none. It moves nodes: pointers to them are void after.
func (t *tree) insert(k key, length uint8) uint32 {
	if n, ok := t.find(k, length); ok {
		return n
	}
	var at uint32
	for {
		n := &t.nodes[at]
		side := k.bit(n.bits) // n.bits < length, or find had found it
		next := n.down[side]
		if next == 0 {
			return t.attach(at, side, k, length)
		}
		c := &t.nodes[next]
		shared := min(k.common(c.key), c.bits, length)
		if shared == c.bits {
			at = next
			continue
		}
		if shared == length { // the new prefix contains the child
			fresh := t.attach(at, side, k, length)
			t.hang(fresh, next)
			return fresh
		}
		fork := t.attach(at, side, k.mask(shared), shared)
		t.hang(fork, next)
		return t.attach(fork, k.bit(shared), k, length)
	}
}

// attach makes a node in the place below at.
func (t *tree) attach(at uint32, side int, k key, length uint8) uint32 {
	var i uint32
	if n := len(t.free); n > 0 {
		i, t.free = t.free[n-1], t.free[:n-1]
	} else {
		i = uint32(len(t.nodes))
		t.nodes = append(t.nodes, node{})
	}
	t.nodes[i] = node{key: k, bits: length, up: at}
	t.nodes[at].down[side] = i
	if length == t.full {
		t.hosts[k] = i
	}
	return i
}

// hang puts an existing node below another that contains it.
func (t *tree) hang(at, child uint32) {
	c := &t.nodes[child]
	c.up = at
	t.nodes[at].down[c.bit(t.nodes[at].bits)] = child
	if c.state&(nodeDirty|nodeBelow) != 0 {
		t.nodes[at].state |= nodeBelow
	}
}

// prune removes the node, and the joints it leaves behind, if nothing needs them.
func (t *tree) prune(i uint32) {
	for i != 0 {
		n := t.nodes[i]
		if n.state&nodeFree != 0 || !n.empty() || n.down[0] != 0 && n.down[1] != 0 {
			return
		}
		child := n.down[0] | n.down[1]
		up := &t.nodes[n.up]
		up.down[n.bit(up.bits)] = child
		if child != 0 {
			t.nodes[child].up = n.up
		}
		if n.bits == t.full {
			delete(t.hosts, n.key)
		}
		t.nodes[i] = node{state: nodeFree}
		t.free = append(t.free, i)
		i = n.up
	}
}

// dirty notes that the node, and so everything inside it, is to be looked at again.
func (t *tree) dirty(i uint32) {
	if t.nodes[i].state&nodeDirty != 0 {
		return
	}
	t.nodes[i].state |= nodeDirty
	for i != 0 {
		i = t.nodes[i].up
		if t.nodes[i].state&nodeBelow != 0 {
			return
		}
		t.nodes[i].state |= nodeBelow
	}
}
