package bpfmaps

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
)

// Addr is what the maps know of an address: the entry of its own, or that of the longest prefix around it. Not ok: there is
// neither, so the address is in no set.
func (m *Maps) Addr(a netip.Addr) (info bpf.AddrInfo, ok bool, err error) {
	if a.Is4() {
		key, prefix := IP4(a), Net4(netip.PrefixFrom(a, 32))
		return lookupAddr(m, bpf.MargayMapIp4Host, bpf.MargayMapIp4Net, &key, &prefix)
	}
	key, prefix := IP6(a), Net6(netip.PrefixFrom(a, 128))
	return lookupAddr(m, bpf.MargayMapIp6Host, bpf.MargayMapIp6Net, &key, &prefix)
}

func lookupAddr[H, N any](m *Maps, hosts, prefixes string, host *H, prefix *N) (info bpf.AddrInfo, ok bool, err error) {
	name := hosts
	if err = m.maps[hosts].Lookup(host, &info); errors.Is(err, ebpf.ErrKeyNotExist) {
		name, err = prefixes, m.maps[prefixes].Lookup(prefix, &info)
	}
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return bpf.AddrInfo{}, false, nil
	}
	if err != nil {
		return bpf.AddrInfo{}, false, fmt.Errorf("read map %s: %w", name, err)
	}
	return info, true, nil
}

// Addrs are all entries of addresses. Single addresses are prefixes of full length.
func (m *Maps) Addrs() (map[netip.Prefix]bpf.AddrInfo, error) {
	all := map[netip.Prefix]bpf.AddrInfo{}
	hosts4, err1 := m.IP4Host.Load()
	for k, info := range hosts4 {
		all[netip.PrefixFrom(netip.AddrFrom4(k.Addr), 32)] = info
	}
	hosts6, err2 := m.IP6Host.Load()
	for k, info := range hosts6 {
		all[netip.PrefixFrom(netip.AddrFrom16(k.Addr), 128)] = info
	}
	prefixes4, err3 := m.IP4Net.Load()
	for k, info := range prefixes4 {
		all[netip.PrefixFrom(netip.AddrFrom4(k.Addr), int(k.Prefixlen))] = info
	}
	prefixes6, err4 := m.IP6Net.Load()
	for k, info := range prefixes6 {
		all[netip.PrefixFrom(netip.AddrFrom16(k.Addr), int(k.Prefixlen))] = info
	}
	return all, errors.Join(err1, err2, err3, err4)
}

// SetsOfClasses are the numbers of the sets that each class is in, ascending. A class in no set is missing.
func (m *Maps) SetsOfClasses() (map[uint32][]uint32, error) {
	chunks, err := m.ClassSets.Load()
	if err != nil {
		return nil, err
	}
	most := map[uint32]uint32{} // the last chunk of each class
	for key := range chunks {
		most[key.Class] = max(most[key.Class], key.Chunk)
	}
	sets := make(map[uint32][]uint32, len(most))
	for class, last := range most {
		for chunk := uint32(0); chunk <= last; chunk++ {
			bits := chunks[bpf.ClassChunk{Class: class, Chunk: chunk}]
			for i := range uint32(len(bits.Bits) * 64) {
				if bits.Bits[i/64]>>(i%64)&1 != 0 {
					sets[class] = append(sets[class], chunk*uint32(len(bits.Bits)*64)+i)
				}
			}
		}
	}
	return sets, nil
}
