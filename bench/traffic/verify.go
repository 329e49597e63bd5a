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
	l, err := s.node.Netlink().LinkByIndex(s.server.IfIndex())
	if err != nil {
		return 0, fmt.Errorf("counters of %s: %w", s.server.Iface(), err)
	}
	return l.Attrs().Statistics.TxPackets, nil
}

// cases are the workload on every site.
func (s *scene) cases(d *Driver, w workload, ops int) []paired.Case {
	var list []paired.Case
	for _, site := range s.sites {
		n := max(2*burst, ops/site.share/(2*burst)*(2*burst))
		list = append(list, paired.Case{Name: site.name, Ops: n, Run: func(ops int) (time.Duration, error) {
			return d.run(w, site.pair, ops)
		}})
	}
	return list
}

// measure runs the workload on every site and makes sure that its packets took the way they were meant to.
func (s *scene) measure(d *Driver, w workload, ops, rounds int) (paired.Samples, error) {
	before := make([]uint64, len(s.sites))
	for i, site := range s.sites {
		var err error
		if before[i], err = site.packets(); err != nil {
			return nil, err
		}
	}
	cases := s.cases(d, w, ops)
	samples, err := paired.Measure(cases, rounds)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", w.name, err)
	}
	var errs []error
	for i, site := range s.sites {
		after, err := site.packets()
		errs = append(errs, err)
		done, through := cases[i].Ops*(rounds+1), after-before[i]
		// At least every other operation sends a packet to the server; a few packets a run may need the host.
		if site.shortcut && through > uint64(done/50+20) {
			errs = append(errs, fmt.Errorf("%s: %d packets of %d operations went through the host's stack", site.name, through, done))
		}
		if !site.shortcut && through < uint64(done/2) {
			errs = append(errs, fmt.Errorf("%s: only %d packets of %d operations went through the host's stack", site.name, through, done))
		}
		if site.verify != nil {
			if err := site.verify(site); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", site.name, err))
			}
		}
	}
	return samples, errors.Join(errs...)
}
