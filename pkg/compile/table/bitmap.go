package table

import "math/bits"

// bitmap is a set of positions in the match table.
type bitmap []uint64

func newBitmap(n int) bitmap { return make(bitmap, (n+63)/64) }

func (b bitmap) has(i int) bool { return b[i>>6]>>(i&63)&1 != 0 }

func (b bitmap) set(i int) { b[i>>6] |= 1 << (i & 63) }

func (b bitmap) clear(i int) { b[i>>6] &^= 1 << (i & 63) }

// add sets the bits that are set in o.
func (b bitmap) add(o bitmap) {
	for i, w := range o {
		b[i] |= w
	}
}

// nextBoth returns the first position from i on that is in both, or n.
func nextBoth(a, b bitmap, i, n int) int {
	if i >= n {
		return n
	}
	w := i >> 6
	mask := ^uint64(0) << (i & 63)
	for ; w < len(a); w++ {
		if v := a[w] & b[w] & mask; v != 0 {
			return w<<6 + bits.TrailingZeros64(v)
		}
		mask = ^uint64(0)
	}
	return n
}

// appendBoth appends the bits that are set in both to list, in ascending order.
func appendBoth(list []int32, a, b bitmap) []int32 {
	for w := range a {
		for v := a[w] & b[w]; v != 0; v &= v - 1 {
			list = append(list, int32(w<<6+bits.TrailingZeros64(v)))
		}
	}
	return list
}
