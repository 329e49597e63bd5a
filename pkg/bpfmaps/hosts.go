package bpfmaps

import (
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
)

// hosts is a map of single addresses. It changes an entry where it is: a program may look for it at that time. It returns those entries
// only that programs find. The check is its own: entries that it is given, and returns, have none.
type hosts[K comparable] struct {
	*kernelMap[K, bpf.HostInfo]
	addr func(K) netip.Addr
}

func newHosts[K comparable](m *ebpf.Map, name string, addr func(K) netip.Addr) *hosts[K] {
	h := &hosts[K]{newKernelMap[K, bpf.HostInfo](m, name), addr}
	h.flags = ebpf.UpdateLock
	return h
}

func (h *hosts[K]) Load() (map[K]bpf.AddrInfo, error) {
	entries := map[K]bpf.AddrInfo{}
	reading := h.Read()
	for last := false; !last; {
		var err error
		if last, err = reading.Next(func(key K, info bpf.AddrInfo) { entries[key] = info }); err != nil {
			return nil, err
		}
	}
	return entries, nil
}

func (h *hosts[K]) Read() Reading[K, bpf.AddrInfo] {
	return hostsRead[K]{h.kernelMap.Read(), h.addr}
}

// hostsRead is a reading of hosts.
type hostsRead[K comparable] struct {
	of   Reading[K, bpf.HostInfo]
	addr func(K) netip.Addr
}

func (r hostsRead[K]) Next(do func(K, bpf.AddrInfo)) (last bool, err error) {
	return r.of.Next(func(key K, host bpf.HostInfo) {
		if info, ok := host.Of(r.addr(key)); ok {
			do(key, info)
		}
	})
}

func (h *hosts[K]) Update(keys []K, infos []bpf.AddrInfo) (int, error) {
	values := make([]bpf.HostInfo, len(keys))
	for i, key := range keys {
		values[i] = bpf.HostInfoOf(h.addr(key), infos[i])
	}
	return h.kernelMap.Update(keys, values)
}

// lookupHost is the entry of a single address, as programs find it.
func lookupHost(m *ebpf.Map, addr netip.Addr) (bpf.AddrInfo, error) {
	var host bpf.HostInfo
	var err error
	if addr.Is4() {
		err = m.Lookup(IP4(addr), &host)
	} else {
		err = m.Lookup(IP6(addr), &host)
	}
	info, ok := host.Of(addr)
	if err == nil && !ok {
		err = ebpf.ErrKeyNotExist
	}
	return info, err
}
