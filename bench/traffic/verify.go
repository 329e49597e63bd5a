//go:build linux

package traffic

import (
	"errors"
	"fmt"
	"time"

	"github.com/margay-project/margay/bench/paired"
)

// packets the host's side of the server's veth pair has sent to the pod: those that went through the host's stack.
func (s *site) packets() (uint64, error) {
	l, err := s.seats[1].node.Netlink().LinkByIndex(s.server.IfIndex())
	if err != nil {
		return 0, fmt.Errorf("counters of %s: %w", s.server.Iface(), err)
	}
	return l.Attrs().Statistics.TxPackets, nil
}

// cases are the workload in every configuration, one node of it in each round.
func (s *scene) cases(d *Driver, w workload, ops int) []paired.Case {
	var list []paired.Case
	nodes := map[string][]*site{}
	for _, site := range s.sites {
		nodes[site.name] = append(nodes[site.name], site)
		if len(nodes[site.name]) > 1 {
			continue
		}
		n, turn := max(2*burst, ops/site.share/(2*burst)*(2*burst)), -1
		list = append(list, paired.Case{Name: site.name, Ops: n, Run: func(ops int) (time.Duration, error) {
			turn++
			all := nodes[site.name]
			site := all[turn%len(all)]
			site.done += ops
			return d.run(w, site.pair, ops)
		}})
	}
	return list
}

// measure runs the workload in every configuration and makes sure that its packets took the way they were meant to.
func (s *scene) measure(d *Driver, w workload, ops, rounds int) (paired.Samples, error) {
	before := make([]uint64, len(s.sites))
	for i, site := range s.sites {
		var err error
		if before[i], err = site.packets(); err != nil {
			return nil, err
		}
		site.done = 0
	}
	samples, err := paired.Measure(s.cases(d, w, ops), rounds)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", w.name, err)
	}
	var errs []error
	for i, site := range s.sites {
		if err := site.check(before[i]); err != nil {
			errs = append(errs, fmt.Errorf("%s on %s: %w", site.name, site.seats[0].node.Name(), err))
		}
	}
	return samples, errors.Join(errs...)
}

// check looks at the way packets took since the interface had sent so many, and at the established flows.
func (s *site) check(before uint64) error {
	after, err := s.packets()
	if err != nil {
		return err
	}
	through := after - before
	// At least every other operation sends a packet to the server; a few packets may need the host.
	if s.shortcut && through > uint64(s.done/50+20) {
		return fmt.Errorf("%d packets of %d operations went through the host's stack", through, s.done)
	}
	if !s.shortcut && through < uint64(s.done/2) {
		return fmt.Errorf("only %d packets of %d operations went through the host's stack", through, s.done)
	}
	if s.verify == nil {
		return nil
	}
	return s.verify(s)
}
