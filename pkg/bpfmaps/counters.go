package bpfmaps

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
)

// Drops count the packets that were dropped. Any goroutine may call its methods while the maps are open.
type Drops struct{ counts *ebpf.Map }

// All are the packets dropped so far by interface, reason and direction, summed over CPUs.
func (d *Drops) All() (map[bpf.DropKey]bpf.Counter, error) {
	drops := map[bpf.DropKey]bpf.Counter{}
	var key bpf.DropKey
	var perCPU []bpf.Counter
	it := d.counts.Iterate()
	for it.Next(&key, &perCPU) {
		drops[key] = sum(perCPU)
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("read map %s: %w", bpf.MargayMapDrops, err)
	}
	return drops, nil
}

// Forget removes the counts of an interface that is gone; its number may come again.
func (d *Drops) Forget(ifindex uint32) error {
	return d.forget(func(i uint32) bool { return i == ifindex })
}

// Keep removes the counts of all interfaces but those that are there.
func (d *Drops) Keep(there map[uint32]bool) error {
	return d.forget(func(i uint32) bool { return !there[i] })
}

func (d *Drops) forget(gone func(ifindex uint32) bool) error {
	drops, err := d.All()
	if err != nil {
		return err
	}
	errs := []error{}
	for key := range drops {
		if !gone(key.Ifindex) {
			continue
		}
		if err := d.counts.Delete(&key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, fmt.Errorf("delete map %s key %+v: %w", bpf.MargayMapDrops, key, err))
		}
	}
	return errors.Join(errs...)
}

// RuleStats count what rules have decided. Any goroutine may call its methods while the maps are open.
type RuleStats struct{ counts *ebpf.Map }

// Below are the first packets of flows by number of the deciding rule, for numbers below limit, summed over CPUs.
// Rules that have decided nothing are left out.
func (r *RuleStats) Below(limit uint32) (map[uint32]bpf.Counter, error) {
	stats := map[uint32]bpf.Counter{}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("count CPUs: %w", err)
	}
	const size = 512
	keys, values := make([]uint32, size), make([]bpf.Counter, size*cpus)
	var cursor ebpf.MapBatchCursor
	for last := false; !last; {
		n, err := r.counts.BatchLookup(&cursor, keys, values, nil)
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

// Zero sets the counts of rules to zero whose numbers another rule will get.
func (r *RuleStats) Zero(rules []uint32) error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count CPUs: %w", err)
	}
	zero := make([]bpf.Counter, cpus)
	var errs []error
	for _, rule := range rules {
		if err := r.counts.Update(rule, zero, ebpf.UpdateAny); err != nil {
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
