package marks

import "encoding/binary"

// The layouts below are the kernel's, from include/uapi/linux/netfilter/xt_mark.h, xt_connmark.h and xt_TPROXY.h; numbers
// are in the host's byte order.

// word returns the i-th 32-bit number; not ok: the extension is too short.
func (x extension) word(i int) (n uint32, ok bool) {
	if len(x.info) < 4*(i+1) {
		return 0, false
	}
	return binary.NativeEndian.Uint32(x.info[4*i:]), true
}

// targetChanges are the bits of the mark that a target may change. Of one that is not known, none.
func targetChanges(x extension) uint32 {
	switch x.name {
	case "MARK": // mark = mark & ~mask ^ value
		value, _ := x.word(0)
		mask, _ := x.word(1)
		return value | mask
	case "TPROXY": // mark = mark & ~mask ^ value
		mask, _ := x.word(0)
		value, _ := x.word(1)
		return value | mask
	case "CONNMARK":
		return restores(x)
	}
	return 0
}

// restores are the bits that CONNMARK --restore-mark changes: mark = mark & ~nfmask ^ (connection's & ctmask), shifted.
// Setting and saving the connection's mark changes none of the packet's.
func restores(x extension) uint32 {
	const (
		direction, shift = 12, 13 // bytes, since revision 2
		restore, right   = 2, 1
	)
	mode := 12
	if x.revision >= 2 {
		mode = 14
	}
	if len(x.info) <= mode || x.info[mode] != restore {
		return 0
	}
	from, _ := x.word(1)
	to, _ := x.word(2)
	if x.revision >= 2 {
		if x.info[direction] == right {
			from >>= x.info[shift]
		} else {
			from <<= x.info[shift]
		}
	}
	return from | to
}

// matchReads are the bits of the mark that a match compares.
func matchReads(x extension) uint32 {
	if x.name != "mark" {
		return 0
	}
	mask, _ := x.word(1)
	return mask
}
