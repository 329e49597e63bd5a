package calc

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"iter"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/mapsize"
)

// members counts the contributors of prefixes. Sets are mostly addresses of pods, and so kept by their bytes.
type members struct {
	v4   map[[4]byte]int32
	v6   map[[16]byte]int32
	nets map[netip.Prefix]int32 // neither /32 nor /128
	most [2]int                 // of v4 and v6, see shrink
}

// add adds delta to the number of contributors of p and returns the number before and after.
func (m *members) add(p netip.Prefix, delta int32) (was, now int32) {
	switch a := p.Addr(); {
	case !p.IsSingleIP():
		return addTo(&m.nets, p, delta)
	case a.Is4():
		return addTo(&m.v4, a.As4(), delta)
	default:
		return addTo(&m.v6, a.As16(), delta)
	}
}

// addTo adds delta to m[k], which is absent when 0, in a map that is made when first needed.
func addTo[K comparable](m *map[K]int32, k K, delta int32) (was, now int32) {
	was = (*m)[k]
	now = was + delta
	switch {
	case now != 0:
		put(m, k, now)
	case was != 0:
		delete(*m, k)
	}
	return was, now
}

func (m *members) has(p netip.Prefix) bool {
	switch a := p.Addr(); {
	case !p.IsSingleIP():
		return m.nets[p] != 0
	case a.Is4():
		return m.v4[a.As4()] != 0
	default:
		return m.v6[a.As16()] != 0
	}
}

// contains reports whether the address is in one of the prefixes.
func (m *members) contains(addr netip.Addr) bool {
	if p, ok := hostPrefix(addr); !ok || m.has(p) {
		return ok
	}
	if len(m.nets) == 0 {
		return false
	}
	for bits := addr.BitLen() - 1; bits >= 0; bits-- {
		if p, err := addr.Prefix(bits); err == nil && m.nets[p] != 0 {
			return true
		}
	}
	return false
}

func (m *members) shrink() {
	mapsize.Shrink(&m.v4, &m.most[0])
	mapsize.Shrink(&m.v6, &m.most[1])
}

func (m *members) len() int { return len(m.v4) + len(m.v6) + len(m.nets) }

// found is len, where a pod with an address of each IP version counts once.
func (m *members) found() int { return max(len(m.v4), len(m.v6)) + len(m.nets) }

// all yields the prefixes, in no order.
func (m *members) all() iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) {
		for a := range m.v4 {
			if !yield(netip.PrefixFrom(netip.AddrFrom4(a), 32)) {
				return
			}
		}
		for a := range m.v6 {
			if !yield(netip.PrefixFrom(netip.AddrFrom16(a), 128)) {
				return
			}
		}
		for p := range m.nets {
			if !yield(p) {
				return
			}
		}
	}
}

// longPrefix is an IPv6 prefix by its bytes.
type longPrefix struct {
	addr [16]byte
	bits int
}

// sorted returns the prefixes in the order of comparePrefixes. There may be hundreds of thousands, and others wait for it, so they are sorted as
// numbers where that is possible.
func (m *members) sorted() []netip.Prefix {
	short, long := make([]uint64, 0, len(m.v4)), make([]longPrefix, 0, len(m.v6))
	for a := range m.v4 {
		short = append(short, shortKey(a, 32))
	}
	for a := range m.v6 {
		long = append(long, longPrefix{a, 128})
	}
	for p := range m.nets {
		if a := p.Addr(); a.Is4() {
			short = append(short, shortKey(a.As4(), p.Bits()))
		} else {
			long = append(long, longPrefix{a.As16(), p.Bits()})
		}
	}
	slices.Sort(short)
	slices.SortFunc(long, func(a, b longPrefix) int { return cmp.Or(bytes.Compare(a.addr[:], b.addr[:]), a.bits-b.bits) })
	all := make([]netip.Prefix, 0, len(short)+len(long))
	for _, k := range short {
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], uint32(k>>8))
		all = append(all, netip.PrefixFrom(netip.AddrFrom4(a), int(k&255)))
	}
	for _, p := range long {
		all = append(all, netip.PrefixFrom(netip.AddrFrom16(p.addr), p.bits))
	}
	return all
}

// shortKey orders IPv4 prefixes, of which no bit beyond the mask is set.
func shortKey(addr [4]byte, bits int) uint64 {
	return uint64(binary.BigEndian.Uint32(addr[:]))<<8 | uint64(bits)
}
