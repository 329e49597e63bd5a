package calc

import (
	"iter"
	"net/netip"
	"slices"
)

// addrList is the addresses of an endpoint, in order, without an allocation for the usual one or two.
type addrList struct {
	v6    [16]byte
	v4    [4]byte
	shape addrShape
}

// addrShape says which addresses an addrList holds.
type addrShape uint8

const (
	noAddr   addrShape = iota
	only4              // one of IPv4
	only6              // one of IPv6
	first4             // IPv4, IPv6
	first6             // IPv6, IPv4
	unpacked           // others, which are in extra.addrs
)

// setAddrs gives an item that was just made its addresses. The list is shared if it does not fit in the item.
func (it *contents) setAddrs(addrs []netip.Addr) {
	shape, n4, n6 := noAddr, 0, 0
	for _, a := range addrs {
		switch {
		case !a.IsValid() || a.Zone() != "":
			n4 = 2
		case a.Is4():
			n4++
			it.v4 = a.As4()
		default:
			n6++
			it.v6 = a.As16()
		}
	}
	switch {
	case n4 > 1 || n6 > 1:
		it.addrList = addrList{shape: unpacked}
		it.more().addrs = addrs
		return
	case n4+n6 == 2 && addrs[0].Is4():
		shape = first4
	case n4+n6 == 2:
		shape = first6
	case n4 == 1:
		shape = only4
	case n6 == 1:
		shape = only6
	}
	it.shape = shape
}

// count is the number of addresses.
func (it *contents) count() int32 {
	n := int32(0)
	for range it.addrs() {
		n++
	}
	return n
}

// addrsOfOneVersion is the number of addresses of the IP version of which there are more.
func (it *contents) addrsOfOneVersion() int {
	switch it.shape {
	case noAddr:
		return 0
	case unpacked:
		n4 := 0
		for _, a := range it.extra.addrs {
			if a.Is4() {
				n4++
			}
		}
		return max(n4, len(it.extra.addrs)-n4)
	}
	return 1
}

// addrs yields the addresses in order.
func (it *contents) addrs() iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		switch it.shape {
		case only4:
			yield(netip.AddrFrom4(it.v4))
		case only6:
			yield(netip.AddrFrom16(it.v6))
		case first4:
			_ = yield(netip.AddrFrom4(it.v4)) && yield(netip.AddrFrom16(it.v6))
		case first6:
			_ = yield(netip.AddrFrom16(it.v6)) && yield(netip.AddrFrom4(it.v4))
		case unpacked:
			for _, a := range it.extra.addrs {
				if !yield(a) {
					return
				}
			}
		}
	}
}

// hasAddrs reports whether these are the addresses, in this order.
func (it *contents) hasAddrs(addrs []netip.Addr) bool {
	i := 0
	for a := range it.addrs() {
		if i == len(addrs) || addrs[i] != a {
			return false
		}
		i++
	}
	return i == len(addrs)
}

// hasAddr is quick: every endpoint of the cluster may be asked.
func (it *contents) hasAddr(addr netip.Addr) bool {
	switch {
	case it.shape == unpacked:
		return slices.Contains(it.extra.addrs, addr)
	case addr.Is4():
		return it.shape != noAddr && it.shape != only6 && it.v4 == addr.As4()
	default:
		return it.shape != noAddr && it.shape != only4 && it.v6 == addr.As16() && addr.Zone() == "" && addr.IsValid()
	}
}

// listAddrs returns the addresses; the list may be shared.
func (it *contents) listAddrs() []netip.Addr {
	if it.shape == unpacked {
		return it.extra.addrs
	}
	return slices.Collect(it.addrs())
}

// hostPrefix is the /32 or /128 of an address; not ok for the zero address.
func hostPrefix(a netip.Addr) (netip.Prefix, bool) {
	return netip.PrefixFrom(a, a.BitLen()), a.IsValid()
}
