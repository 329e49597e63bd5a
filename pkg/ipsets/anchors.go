package ipsets

import (
	"net/netip"
	"slices"
)

// Places of anchors, in ranges that the IETF has reserved and assigned to no use. Prefixes of less than 4 bits (IPv6: 9) at these
// places contain used addresses, too. So an anchor has the value that its place would have without the anchor.
var (
	anchorPlace4 = netip.MustParseAddr("240.0.0.0")
	anchorPlace6 = netip.MustParseAddr("fe00::")
)

const (
	// anchorInterface is no interface's name: the kernel forbids the slash.
	anchorInterface = "margay/anchor"
	// anchorProtocol is reserved and never in a packet; sets of NetPort refuse it to their users.
	anchorProtocol = 255
)

func anchorPlace(f Family) netip.Addr {
	if f == IPv6 {
		return anchorPlace6
	}
	return anchorPlace4
}

// anchorKey returns the key of the anchor of a prefix length.
func (s Spec) anchorKey(bits int) Key {
	k := Key{Prefix: netip.PrefixFrom(anchorPlace(s.Family), bits).Masked()}
	switch s.Type {
	case NetInterface:
		k.Interface = anchorInterface
	case NetPort:
		k.Protocol = anchorProtocol
	}
	return k
}

// IsAnchor reports whether the key of a set of prefixes and interfaces is that of an anchor: an entry that matches no packet, see docs/iptables.md.
func (k Key) IsAnchor() bool { return k.Interface == anchorInterface }

func (s *Set) isAnchor(k Key) bool {
	return k == s.spec.anchorKey(k.Prefix.Bits()) && s.anchored[k.Prefix.Bits()]
}

// anchor adds the anchor of a prefix length, before the first entry of the length. In sets of NetInterface and NetPort an anchor matches no
// packet. In those of Net it has the value of the longest shorter prefix that contains its place; without such a prefix it
// is an exception (NoMatch), which means "not in the set", as without the anchor.
func (s *Set) anchor(b *batch, bits int) error {
	if s.spec.Type.splits() {
		bits = max(bits, 1)
	}
	if s.anchored[bits] {
		return nil
	}
	s.anchored[bits] = true
	k := s.spec.anchorKey(bits)
	e, _ := s.effective(k)
	e.Key = k
	b.add(0, Change{Entry: e})
	if _, err := b.end(0, nil); err != nil {
		s.anchored[bits] = false
		return err
	}
	return nil
}

// isSpecial reports whether the kernel's entry for the key may differ from the one that the user wants.
func (s Spec) isSpecial(k Key) bool {
	bits := k.Prefix.Bits()
	if s.Type == Net && k.Prefix.Contains(anchorPlace(s.Family)) {
		return true
	}
	return bits <= 1 && s.Type.splits()
}

// affected returns the keys whose value in the kernel can depend on the wanted entry of k.
func (s *Set) affected(k Key) []Key {
	bits := k.Prefix.Bits()
	var keys []Key
	if low, high, ok := halves(k.Prefix); ok && s.spec.Type.splits() {
		for _, half := range []netip.Prefix{low, high} {
			part := k
			part.Prefix = half
			keys = append(keys, part)
		}
	} else {
		keys = append(keys, k)
	}
	if s.spec.Type == Net && k.Prefix.Contains(anchorPlace(s.spec.Family)) {
		for longer := max(bits, 1) + 1; longer <= s.spec.Family.bits(); longer++ {
			if s.anchored[longer] {
				keys = append(keys, s.spec.anchorKey(longer))
			}
		}
	}
	return keys
}

// effective returns the entry that the kernel is to hold for a special key or an anchor; false: none.
func (s *Set) effective(k Key) (Entry, bool) {
	if e, ok := s.special[k]; ok {
		return e, true
	}
	if k.Prefix.Bits() == 1 && s.spec.Type.splits() {
		space := k
		space.Prefix = whole(k.Prefix)
		if e, ok := s.special[space]; ok {
			return e, true
		}
	}
	if !s.isAnchor(k) {
		return Entry{}, false
	}
	if s.spec.Type == Net {
		for bits := k.Prefix.Bits() - 1; bits >= 0; bits-- {
			if e, ok := s.special[Key{Prefix: netip.PrefixFrom(k.Prefix.Addr(), bits).Masked()}]; ok {
				return e, true
			}
		}
	}
	return Entry{NoMatch: true}, true
}

// Prefixes returns the prefixes of a set of Net in the kernel, without anchors and exceptions. An entry at an anchor's place that a shorter
// prefix contains counts as an anchor: it matches no more packets than that prefix.
func Prefixes(k Kernel, s Spec) ([]netip.Prefix, error) {
	var all, list []netip.Prefix
	err := k.List(s, func(e Entry) {
		if !e.NoMatch {
			all = append(all, e.Prefix)
		}
	})
	for _, p := range all {
		covered := slices.ContainsFunc(all, func(q netip.Prefix) bool { return q.Bits() < p.Bits() && q.Contains(p.Addr()) })
		if (Key{Prefix: p}) != s.anchorKey(p.Bits()) || !covered {
			list = append(list, p)
		}
	}
	return list, err
}
