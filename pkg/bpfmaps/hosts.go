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
	err := h.Scan(func(key K, info bpf.AddrInfo) bool {
		entries[key] = info
		return true
	})
	if err != nil {
		return nil, err
	}
	return entries, nil
}

func (h *hosts[K]) Scan(do func(K, bpf.AddrInfo) bool) error {
	return h.kernelMap.Scan(func(key K, host bpf.HostInfo) bool {
		info, ok := host.Of(h.addr(key))
		return !ok || do(key, info)
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
