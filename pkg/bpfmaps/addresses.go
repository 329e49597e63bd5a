package bpfmaps

import (
	"errors"
	"fmt"
	"math"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
)

// Addresses are what the programs know of addresses: the class, and whose it is. Single addresses have maps of their own.
type Addresses struct {
	IP4Host *Table[bpf.IP4, bpf.AddrInfo]
	IP6Host *Table[bpf.IP6, bpf.AddrInfo]
	IP4Net  *Table[bpf.Net4, bpf.AddrInfo]
	IP6Net  *Table[bpf.Net6, bpf.AddrInfo]
	// Sources are the further sources of endpoints, each with the value 1.
	Sources *Table[bpf.SourceKey, uint32]

	maps map[string]*ebpf.Map
}

func newAddresses(maps map[string]*ebpf.Map) *Addresses {
	return &Addresses{
		IP4Host: NewTable[bpf.IP4, bpf.AddrInfo](newHosts(maps[bpf.MargayMapIp4Host], bpf.MargayMapIp4Host, func(k bpf.IP4) netip.Addr { return netip.AddrFrom4(k.Addr) })),
		IP6Host: NewTable[bpf.IP6, bpf.AddrInfo](newHosts(maps[bpf.MargayMapIp6Host], bpf.MargayMapIp6Host, func(k bpf.IP6) netip.Addr { return netip.AddrFrom16(k.Addr) })),
		IP4Net:  NewTable(newKernelMap[bpf.Net4, bpf.AddrInfo](maps[bpf.MargayMapIp4Net], bpf.MargayMapIp4Net)),
		IP6Net:  NewTable(newKernelMap[bpf.Net6, bpf.AddrInfo](maps[bpf.MargayMapIp6Net], bpf.MargayMapIp6Net)),
		Sources: NewTable(newKernelMap[bpf.SourceKey, uint32](maps[bpf.MargayMapSources], bpf.MargayMapSources)),
		maps:    maps,
	}
}

// Sync writes the pending changes of the four maps of classes and owners.
func (a *Addresses) Sync() error {
	return errors.Join(a.IP4Host.Sync(), a.IP6Host.Sync(), a.IP4Net.Sync(), a.IP6Net.Sync())
}

// Lookup is what the maps know of an address: the entry of its own, or that of the longest prefix around it. Not ok: there is
// neither, so the address is in no set.
func (a *Addresses) Lookup(addr netip.Addr) (info bpf.AddrInfo, ok bool, err error) {
	hosts, prefixes := bpf.MargayMapIp6Host, bpf.MargayMapIp6Net
	if addr.Is4() {
		hosts, prefixes = bpf.MargayMapIp4Host, bpf.MargayMapIp4Net
	}
	name := hosts
	if info, err = lookupHost(a.maps[hosts], addr); errors.Is(err, ebpf.ErrKeyNotExist) {
		name = prefixes
		info, err = lookupPrefix(a.maps[prefixes], addr)
	}
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return bpf.AddrInfo{}, false, nil
	}
	if err != nil {
		return bpf.AddrInfo{}, false, fmt.Errorf("read map %s: %w", name, err)
	}
	return info, true, nil
}

// lookupPrefix is the entry of the longest prefix around an address.
func lookupPrefix(m *ebpf.Map, addr netip.Addr) (info bpf.AddrInfo, err error) {
	whole := netip.PrefixFrom(addr, addr.BitLen())
	if addr.Is4() {
		err = m.Lookup(Net4(whole), &info)
	} else {
		err = m.Lookup(Net6(whole), &info)
	}
	return info, err
}

// SourceKey is the key of a further source of the endpoint on an interface.
func SourceKey(ifindex uint32, p netip.Prefix) bpf.SourceKey {
	const before = 64 // bits: the interface and the family
	k := bpf.SourceKey{Prefixlen: before + uint32(p.Bits()), Ifindex: ifindex, Family: 6}
	if p.Addr().Is4() {
		k.Family = 4
	}
	copy(k.Addr[:], p.Masked().Addr().AsSlice())
	return k
}

// SourcePrefix is the further source that a key stands for.
func SourcePrefix(k bpf.SourceKey) netip.Prefix {
	a := netip.AddrFrom16(k.Addr)
	if k.Family == 4 {
		a = netip.AddrFrom4([4]byte(k.Addr[:4]))
	}
	return netip.PrefixFrom(a, int(k.Prefixlen)-64)
}

// All are all entries, as they are in the maps now. Single addresses are prefixes of full length.
func (a *Addresses) All() (map[netip.Prefix]bpf.AddrInfo, error) {
	all := map[netip.Prefix]bpf.AddrInfo{}
	hosts4, err1 := a.IP4Host.Load()
	for k, info := range hosts4 {
		all[netip.PrefixFrom(netip.AddrFrom4(k.Addr), 32)] = info
	}
	hosts6, err2 := a.IP6Host.Load()
	for k, info := range hosts6 {
		all[netip.PrefixFrom(netip.AddrFrom16(k.Addr), 128)] = info
	}
	prefixes4, err3 := a.IP4Net.Load()
	for k, info := range prefixes4 {
		all[netip.PrefixFrom(netip.AddrFrom4(k.Addr), int(k.Prefixlen))] = info
	}
	prefixes6, err4 := a.IP6Net.Load()
	for k, info := range prefixes6 {
		all[netip.PrefixFrom(netip.AddrFrom16(k.Addr), int(k.Prefixlen))] = info
	}
	return all, errors.Join(err1, err2, err3, err4)
}

// SmallestOfAddresses is how many entries the smallest of the maps of addresses and prefixes has room for, given those of each map by its name.
func SmallestOfAddresses(entries func(name string) uint32) int {
	smallest := uint32(math.MaxUint32)
	for _, name := range []string{bpf.MargayMapIp4Host, bpf.MargayMapIp4Net, bpf.MargayMapIp6Host, bpf.MargayMapIp6Net} {
		smallest = min(smallest, entries(name))
	}
	return int(smallest)
}
