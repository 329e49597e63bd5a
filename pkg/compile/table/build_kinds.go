package table

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/compile/classes"
)

// kinds are classes that one table cannot tell apart.
type kinds struct {
	of  []int   // a kind -> the index of a class of it
	all []int32 // the index of a class -> its kind
}

// number finds the kinds, and makes the array of rows. False: that would be too large.
func (b *builder) number(classes []classes.Class) bool {
	capacity := rowsFor(max(classes[len(classes)-1].ID, b.lim.Room))
	if capacity*binary.Size(bpf.CellBlock{}) > b.lim.Bytes {
		return false
	}
	b.t.Rows = make([]bpf.CellBlock, capacity)
	b.t.kinds = map[string]int32{} // as many as the policy tells apart, not as there are classes
	b.all = make([]int32, len(classes))
	var key []byte
	last, lastKind := []byte(nil), int32(0)
	apart := [256]int32{} // by family: the kind of classes that the policy does not know, and 1; 0: not known yet
	for i := range classes {
		c := &classes[i]
		if i%256 == 255 && !b.spend(128) {
			return false
		}
		isApart := b.t.isApart(c)
		if isApart && apart[c.Family] > 0 { // as most classes of others are
			b.all[i] = apart[c.Family] - 1
			continue
		}
		key = b.t.appendKind(key[:0], *c)
		if !bytes.Equal(key, last) {
			kind, ok := b.t.kinds[string(key)]
			if !ok {
				kind = int32(len(b.of))
				b.t.kinds[string(key)] = kind
				b.of = append(b.of, i)
			}
			last, lastKind = append(last[:0], key...), kind
		}
		if b.all[i] = lastKind; isApart {
			apart[c.Family] = lastKind + 1
		}
	}
	return true
}

// rowsFor is how many values the array of rows has if there are classes up to most: with a quarter or more to spare.
func rowsFor(most uint32) int {
	needed := uint(most)/uint(cellsPerBlock) + 1
	return 1 << bits.Len((needed*4+2)/3-1)
}

// withNone returns the classes by id, with those that have no sets: the same slice if it is so already.
func withNone(some []classes.Class) []classes.Class {
	if len(some) >= 2 && some[0].ID == classes.None4 && some[1].ID == classes.None6 && ascending(some) {
		return some
	}
	all := append(slices.Clone(some), classes.Class{ID: classes.None4, Family: 4}, classes.Class{ID: classes.None6, Family: 6})
	slices.SortFunc(all, func(a, b classes.Class) int { return cmp.Compare(a.ID, b.ID) })
	return slices.CompactFunc(all, func(a, b classes.Class) bool { return a.ID == b.ID })
}

func ascending(list []classes.Class) bool {
	for i := 1; i < len(list); i++ {
		if list[i].ID <= list[i-1].ID {
			return false
		}
	}
	return true
}
