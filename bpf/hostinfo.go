package bpf

import (
	"encoding/binary"
	"net/netip"
)

// An entry of a single address has one byte for flags.
const _ = uint8(AddrEndpoint | AddrHost | AddrMayTranslate | AddrOwned)

// HostInfoOf is the entry of a single address. Its check tells programs when the memory of an entry has another address by now.
func HostInfoOf(addr netip.Addr, info AddrInfo) HostInfo {
	return HostInfo{Class: info.Class, Flags: uint8(info.Flags), Ifindex: info.Ifindex, Check: addressCheck(addr)}
}

// Of is what the entry says of the address that it was found at. Not ok: programs do not find it there.
func (h HostInfo) Of(addr netip.Addr) (info AddrInfo, ok bool) {
	return AddrInfo{Class: h.Class, Flags: uint32(h.Flags), Ifindex: h.Ifindex}, h.Check == addressCheck(addr)
}

// addressCheck is address_check in lib/endpoint.h, which reads the bytes of an address as words of the machine.
func addressCheck(addr netip.Addr) [3]uint8 {
	const factor = 0x9e3779b1
	all := addr.As16()
	bytes := all[:]
	if addr.Is4() {
		bytes = all[12:]
	}
	sum := binary.NativeEndian.Uint32(bytes) * factor
	for rest := bytes[4:]; len(rest) > 0; rest = rest[4:] {
		sum = (sum ^ binary.NativeEndian.Uint32(rest)) * factor
	}
	return [3]uint8{uint8(sum >> 8), uint8(sum >> 16), uint8(sum >> 24)}
}
