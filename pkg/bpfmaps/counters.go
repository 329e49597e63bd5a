package bpfmaps

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
)

// Drops are the packets dropped so far by interface, reason and direction, summed over CPUs.
func (m *Maps) Drops() (map[bpf.DropKey]bpf.Counter, error) {
	drops := map[bpf.DropKey]bpf.Counter{}
	var key bpf.DropKey
	var perCPU []bpf.Counter
	it := m.maps[bpf.MargayMapDrops].Iterate()
	for it.Next(&key, &perCPU) {
		drops[key] = sum(perCPU)
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("read map %s: %w", bpf.MargayMapDrops, err)
	}
	return drops, nil
}

// ForgetDrops removes the counts of an interface that is gone; its number may come again.
func (m *Maps) ForgetDrops(ifindex uint32) error {
	drops, err := m.Drops()
	if err != nil {
		return err
	}
	errs := []error{}
	for key := range drops {
		if key.Ifindex != ifindex {
			continue
		}
		if err := m.maps[bpf.MargayMapDrops].Delete(&key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, fmt.Errorf("delete map %s key %+v: %w", bpf.MargayMapDrops, key, err))
		}
	}
	return errors.Join(errs...)
}

// RuleStats are the first packets of flows by number of the deciding rule, for numbers below limit, summed over CPUs.
// Rules that have decided nothing are left out.
func (m *Maps) RuleStats(limit uint32) (map[uint32]bpf.Counter, error) {
	stats := map[uint32]bpf.Counter{}
	array := m.maps[bpf.MargayMapRuleStats]
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("count CPUs: %w", err)
	}
	const size = 512
	keys, values := make([]uint32, size), make([]bpf.Counter, size*cpus)
	var cursor ebpf.MapBatchCursor
	for last := false; !last; {
		n, err := array.BatchLookup(&cursor, keys, values, nil)
		last = errors.Is(err, ebpf.ErrKeyNotExist)
		if err != nil && !last {
			return nil, fmt.Errorf("read map %s: %w", bpf.MargayMapRuleStats, err)
		}
		for i, key := range keys[:n] {
			if key >= limit {
				return stats, nil
			}
			if c := sum(values[i*cpus : (i+1)*cpus]); c.Packets != 0 {
				stats[key] = c
			}
		}
		last = last || n == 0
	}
	return stats, nil
}

// ZeroRuleStats sets the counts of rules to zero whose numbers another rule will get.
func (m *Maps) ZeroRuleStats(rules []uint32) error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count CPUs: %w", err)
	}
	zero := make([]bpf.Counter, cpus)
	var errs []error
	for _, rule := range rules {
		if err := m.maps[bpf.MargayMapRuleStats].Update(rule, zero, ebpf.UpdateAny); err != nil {
			errs = append(errs, fmt.Errorf("write map %s key %d: %w", bpf.MargayMapRuleStats, rule, err))
		}
	}
	return errors.Join(errs...)
}

func sum(perCPU []bpf.Counter) bpf.Counter {
	var c bpf.Counter
	for _, one := range perCPU {
		c.Packets += one.Packets
		c.Bytes += one.Bytes
	}
	return c
}
