package bpfmaps

import (
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
)

// TestAnEntryThatChangesIsAlwaysFound: programs look for an address, and for staged policies of an interface, while these change. An entry that is
// replaced is behind its new one in its bucket, so who has passed that place and comes to the old one finds neither.
func TestAnEntryThatChangesIsAlwaysFound(t *testing.T) {
	testutil.Privileged(t)
	const crowd, changes = 64, 3000
	sizes := maps.Clone(small)
	sizes[bpf.MargayMapIp4Host], sizes[bpf.MargayMapIp6Host], sizes[bpf.MargayMapStaged] = crowd, crowd, crowd
	m := mustOpen(t, Options{BPFFS: testutil.BPFFS(t), Instance: "test", MaxEntries: sizes})
	a := m.Addresses
	addr4 := func(i uint32) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}) }
	addr6 := func(i uint32) netip.Addr { return netip.AddrFrom16([16]byte{0xfd, 15: byte(i)}) }
	found := func(addr netip.Addr) bool { _, ok, err := a.Lookup(addr); return ok && err == nil }
	for name, c := range map[string]struct {
		set  func(i, change uint32)
		sync func() error
		find func(i uint32) bool
	}{
		"IPv4": {func(i, change uint32) { a.IP4Host.Set(IP4(addr4(i)), bpf.AddrInfo{Class: change}) }, a.Sync, func(i uint32) bool { return found(addr4(i)) }},
		"IPv6": {func(i, change uint32) { a.IP6Host.Set(IP6(addr6(i)), bpf.AddrInfo{Class: change}) }, a.Sync, func(i uint32) bool { return found(addr6(i)) }},
		"staged": {func(i, change uint32) { m.Staged.Set(i, bpf.Staged{Ingress: uint64(change)}) }, m.Staged.Sync,
			func(i uint32) bool { var s bpf.Staged; return m.Map(bpf.MargayMapStaged).Lookup(i, &s) == nil }},
	} {
		t.Run(name, func(t *testing.T) {
			write := func(change uint32) {
				for i := range uint32(crowd) {
					c.set(i, change)
				}
				if err := c.sync(); err != nil {
					t.Error(err)
				}
			}
			write(1)
			var ended atomic.Bool
			var reader sync.WaitGroup
			reader.Go(func() {
				for i := uint32(0); !ended.Load() && !t.Failed(); i = (i + 1) % crowd {
					if !c.find(i) {
						t.Errorf("entry %d is not found", i)
					}
				}
			})
			for change := uint32(2); change < changes && !t.Failed(); change++ {
				write(change)
			}
			ended.Store(true)
			reader.Wait()
		})
	}
}
