package verify

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// Signature lists the atoms that an address is in, ascending.
type Signature []uint32

func (s Signature) has(atom uint32) bool {
	_, ok := slices.BinarySearch(s, atom)
	return ok
}

// Pair is a kind of addresses: all have the same class in the kernel and are in the same atoms.
type Pair struct {
	Class     uint32
	Signature Signature
	ID        uint32 // identifies the signature
	Family    uint8
	Some      []netip.Addr // the first few of them, one of each prefix
}

// mostSome bounds the addresses in Pair.Some.
const mostSome = 16

// Regions divides the addresses into Pairs.
type Regions struct {
	atoms *Atoms
	items []item
	pairs map[pairKey]*Pair
	order []*Pair
	ids   map[string]uint32
	asked map[netip.Addr]Signature
	pause func() error
}

// item is a member of an atom, or an entry of the kernel.
type item struct {
	prefix netip.Prefix
	number uint32 // the atom, or the class
	kind   itemKind
}

type itemKind uint8

const (
	isMember itemKind = iota
	isEntry
	isAsked // an address whose signature Of will return
)

type pairKey struct {
	class, id uint32
	family    uint8
}

// NewRegions returns Regions without addresses. pause is called often; if it returns an error, that ends the work.
func NewRegions(atoms *Atoms, pause func() error) *Regions {
	r := &Regions{atoms: atoms, pairs: map[pairKey]*Pair{}, ids: map[string]uint32{}, asked: map[netip.Addr]Signature{}, pause: pause}
	for n, atom := range atoms.nets {
		r.items = append(r.items, item{prefix: n.Masked(), number: atom})
	}
	return r
}

// AddMembers adds the members of a set that is among the atoms.
func (r *Regions) AddMembers(id model.SetID, members []netip.Prefix) {
	atom := r.atoms.sets[id]
	for _, p := range members {
		r.items = append(r.items, item{prefix: p.Masked(), number: atom})
	}
}

// AddEntries adds entries of the kernel. Those of 0.0.0.0/0 and ::/0 must be among them: the class of all other addresses.
func (r *Regions) AddEntries(list []Entry) {
	for _, e := range list {
		r.items = append(r.items, item{prefix: e.Prefix.Masked(), number: e.Class, kind: isEntry})
	}
}

// Ask makes Of know the signature of an address.
func (r *Regions) Ask(a netip.Addr) {
	r.items = append(r.items, item{prefix: netip.PrefixFrom(a, a.BitLen()), kind: isAsked})
}

// Of returns the signature of an address, after Pairs. Ask must have been called for the address before Pairs.
func (r *Regions) Of(a netip.Addr) Signature { return r.asked[a] }

// frame is a prefix around the present one.
type frame struct {
	prefix    netip.Prefix
	last      netip.Addr
	class     uint32
	signature Signature
	id        uint32
	free      netip.Addr // an address in none of the longer prefixes so far; invalid: there is none
	found     bool       // free is final
}

// Pairs returns all kinds of addresses.
func (r *Regions) Pairs() ([]*Pair, error) {
	slices.SortFunc(r.items, func(a, b item) int { return a.prefix.Compare(b.prefix) })
	var stack []*frame
	for n, steps := 0, 0; n < len(r.items); {
		p := r.items[n].prefix
		to := n + 1
		for to < len(r.items) && r.items[to].prefix == p {
			to++
		}
		for len(stack) > 0 && !contains(stack[len(stack)-1].prefix, p) {
			r.emit(stack[len(stack)-1])
			stack = stack[:len(stack)-1]
		}
		var around *frame
		if len(stack) > 0 {
			around = stack[len(stack)-1]
			around.cover(p)
		}
		stack = append(stack, r.open(p, r.items[n:to], around))
		steps++
		if n = to; steps%1024 == 0 {
			if err := r.pause(); err != nil {
				return nil, err
			}
		}
	}
	for i := len(stack) - 1; i >= 0; i-- {
		r.emit(stack[i])
	}
	return r.order, nil
}

func contains(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}

// open begins a prefix that is inside another one.
func (r *Regions) open(p netip.Prefix, items []item, around *frame) *frame {
	f := &frame{prefix: p, last: lastOf(p), free: p.Addr()}
	if around != nil {
		f.class, f.signature, f.id = around.class, around.signature, around.id
	}
	own := Signature{}
	asked := false
	for _, i := range items {
		switch i.kind {
		case isEntry:
			f.class = i.number
		case isAsked:
			asked = true
		case isMember:
			if !f.signature.has(i.number) {
				own = append(own, i.number)
			}
		}
	}
	if len(own) > 0 || around == nil {
		f.signature = append(own, f.signature...)
		slices.Sort(f.signature)
		f.signature = slices.Compact(f.signature)
		f.id = r.idOf(f.signature)
	}
	if asked {
		r.asked[p.Addr()] = f.signature
	}
	return f
}

func (r *Regions) idOf(s Signature) uint32 {
	key := make([]byte, 0, 4*len(s))
	for _, atom := range s {
		key = binary.LittleEndian.AppendUint32(key, atom)
	}
	id, ok := r.ids[string(key)]
	if !ok {
		id = uint32(len(r.ids))
		r.ids[string(key)] = id
	}
	return id
}

// cover notes that a longer prefix has some of the addresses. Prefixes come in ascending order.
func (f *frame) cover(p netip.Prefix) {
	if f.found || !f.free.IsValid() {
		return
	}
	if f.free.Less(p.Addr()) {
		f.found = true
		return
	}
	if last := lastOf(p); !last.Less(f.free) {
		f.free = last.Next() // invalid behind the last address of all
	}
}

// emit adds a prefix that is complete to its Pair, unless longer prefixes have all of its addresses.
func (r *Regions) emit(f *frame) {
	if !f.free.IsValid() || f.last.Less(f.free) {
		return
	}
	key := pairKey{f.class, f.id, Family(f.free)}
	pair := r.pairs[key]
	if pair == nil {
		pair = &Pair{Class: f.class, Signature: f.signature, ID: f.id, Family: key.family}
		r.pairs[key] = pair
		r.order = append(r.order, pair)
	}
	if len(pair.Some) < mostSome {
		pair.Some = append(pair.Some, f.free)
	}
}

// lastOf returns the last address of a prefix.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}
