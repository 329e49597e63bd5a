package bpfmaps

import (
	"fmt"
	"math"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/bpf"
)

// OpenEnded is a grace period that has no end yet.
const OpenEnded = math.MaxUint64

// MidFlowGrace is until when a TCP packet in mid-flow is believed to be an answer (D-20), in nanoseconds of
// CLOCK_MONOTONIC; OpenEnded: until it is set to something else.
func (f *Flows) MidFlowGrace() (uint64, error) {
	var g bpf.Grace
	if err := f.grace.Lookup(uint32(0), &g); err != nil {
		return 0, fmt.Errorf("read map %s: %w", bpf.MargayMapMidflowGrace, err)
	}
	return g.Until, nil
}

// SetMidFlowGrace sets it.
func (f *Flows) SetMidFlowGrace(until uint64) error {
	if err := f.grace.Put(uint32(0), bpf.Grace{Until: until}); err != nil {
		return fmt.Errorf("write map %s: %w", bpf.MargayMapMidflowGrace, err)
	}
	return nil
}

// KernelTime is the time that the programs read, d from now.
func KernelTime(d time.Duration) (uint64, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, fmt.Errorf("read the clock: %w", err)
	}
	return uint64(now.Nano() + d.Nanoseconds()), nil
}
