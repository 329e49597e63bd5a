package calc

import (
	"iter"
	"net/netip"

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
