package table

import (
	"bytes"
	"encoding/binary"
	"math/bits"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/compile/classes"
)

// kinds are classes that one table cannot tell apart.
type kinds struct {
	of    []classes.Class // a kind -> a class of it
	all   []int32         // by class of pages that are not apart, in the order of the list -> its kind
	apart [256]int32      // by family: one more than the kind of classes that the policy does not know; 0: there is none yet
}

// number finds the kinds, and makes the array of rows. False: that would be too large.
func (b *builder) number(known classes.List) bool {
	capacity := rowsFor(max(known.Last(), b.lim.Room))
	if capacity*binary.Size(bpf.CellBlock{}) > b.lim.Bytes {
		return false
	}
	b.t.Rows = make([]bpf.CellBlock, capacity)
	b.t.kinds = map[string]int32{} // as many as the policy tells apart, not as there are classes
	var key, last []byte
	lastKind := int32(0)
	for page := range known.Pages() {
		if isApart(b.t.refers, page.First, page.Last) { // as most classes of others are
			for i := range page.Classes {
				b.kindApart(&page.Classes[i])
			}
			if !b.spend(2) {
				return false
			}
			continue
		}
		for i := range page.Classes {
			c := &page.Classes[i]
			if b.t.knowsNone(c) {
				b.all = append(b.all, b.kindApart(c))
				continue
			}
			if key = b.t.appendKind(key[:0], c); !bytes.Equal(key, last) {
				last, lastKind = append(last[:0], key...), b.kind(key, c)
			}
			b.all = append(b.all, lastKind)
		}
		if !b.spend(32) {
			return false
		}
	}
	return true
}

// kind is the kind with a key. That of another key is made, with a class of it.
func (b *builder) kind(key []byte, c *classes.Class) int32 {
	kind, ok := b.t.kinds[string(key)]
	if !ok {
		kind = int32(len(b.of))
		b.t.kinds[string(key)] = kind
		b.of = append(b.of, *c)
	}
	return kind
}

// kindApart is the kind of a class that the policy does not know.
func (b *builder) kindApart(c *classes.Class) int32 {
	if b.apart[c.Family] == 0 {
		b.apart[c.Family] = b.kind([]byte{c.Family}, c) + 1
	}
	return b.apart[c.Family] - 1
}

// fillRows gives all known classes the rows of their kinds. False: it is to end.
func (b *builder) fillRows(known classes.List) bool {
	at := 0
	for page := range known.Pages() {
		apart := isApart(b.t.refers, page.First, page.Last)
		for i := range page.Classes {
			c := &page.Classes[i]
			kind := b.apart[c.Family] - 1
			if !apart {
				kind = b.all[at]
				at++
			}
			b.t.SetRow(c.ID, b.t.rowOfKind[kind])
		}
		if !b.spend(8) {
			return false
		}
	}
	return true
}

// rowsFor is how many values the array of rows has if there are classes up to most: with a quarter or more to spare.
func rowsFor(most uint32) int {
	needed := uint(most)/uint(cellsPerBlock) + 1
	return 1 << bits.Len((needed*4+2)/3-1)
}
