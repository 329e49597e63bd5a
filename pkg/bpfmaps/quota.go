package bpfmaps

import (
	"errors"
	"fmt"
	"maps"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
)

// OpenFlows are the counts of open flows by interface. Interfaces that never had one are left out.
func (m *Maps) OpenFlows() (map[uint32]bpf.OpenCount, error) {
	counts, err := newKernelMap[uint32, bpf.OpenCount](m.maps[bpf.MargayMapOpenFlows], bpf.MargayMapOpenFlows).Load()
	if err != nil {
		return nil, fmt.Errorf("read map %s: %w", bpf.MargayMapOpenFlows, err)
	}
	return counts, nil
}

// ForgetOpenFlows removes the counts of interfaces without open flows, except those to keep. While flows are left they
// are charged to their interface, so the count has to stay, too.
func (m *Maps) ForgetOpenFlows(keep func(ifindex uint32) bool) error {
	counts, err := m.OpenFlows()
	if err != nil {
		return err
	}
	maps.DeleteFunc(counts, func(ifindex uint32, c bpf.OpenCount) bool { return int32(c.Open) > 0 || keep(ifindex) })
	var errs []error
	for ifindex := range counts {
		if err := m.maps[bpf.MargayMapOpenFlows].Delete(&ifindex); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, fmt.Errorf("delete map %s key %d: %w", bpf.MargayMapOpenFlows, ifindex, err))
		}
	}
	return errors.Join(errs...)
}
