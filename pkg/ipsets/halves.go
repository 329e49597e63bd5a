package ipsets

import "net/netip"

// splits reports whether the kernel refuses a prefix of length 0 in sets of the type.
func (t Type) splits() bool { return t != NetInterface }

// halves returns the two halves of the address space for a prefix of length 0, which they replace; ok is false for other
// prefixes.
func halves(p netip.Prefix) (low, high netip.Prefix, ok bool) {
	if p.Bits() != 0 {
		return low, high, false
	}
	if p.Addr().Is4() {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{}), 1), netip.PrefixFrom(netip.AddrFrom4([4]byte{0x80}), 1), true
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 1), netip.PrefixFrom(netip.AddrFrom16([16]byte{0x80}), 1), true
}

// whole is the address space that a half belongs to.
func whole(half netip.Prefix) netip.Prefix {
	if half.Addr().Is4() {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{}), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// joiner passes on entries as they come, except halves of the address space. It keeps those until the end, and joins two halves
// with equal values.
type joiner struct {
	kind Type
	each func(Entry)
	held []Entry
}

func (j *joiner) add(e Entry) {
	if e.Prefix.Bits() != 1 || !j.kind.splits() {
		j.each(e)
		return
	}
	low, high, _ := halves(whole(e.Prefix))
	for i, other := range j.held {
		both := e.Prefix == low && other.Prefix == high || e.Prefix == high && other.Prefix == low
		other.Prefix = e.Prefix
		if both && other == e {
			j.held = append(j.held[:i], j.held[i+1:]...)
			e.Prefix = whole(e.Prefix)
			j.each(e)
			return
		}
	}
	j.held = append(j.held, e)
}

func (j *joiner) end() {
	for _, e := range j.held {
		j.each(e)
	}
}

// split replaces a change of the whole address space by changes of its halves.
func split(t Type, c Change, each func(Change)) {
	low, high, ok := halves(c.Prefix)
	if !ok || !t.splits() {
		each(c)
		return
	}
	c.Prefix = low
	each(c)
	c.Prefix = high
	each(c)
}
