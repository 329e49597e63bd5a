package bpfmaps

import (
	"fmt"
	"math"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/bpf"
)

// flowMaps are the maps whose loss makes TCP connections unknown that are open.
var flowMaps = []string{bpf.MargayMapCt4, bpf.MargayMapCt6}

// OpenEnded is a grace period that has no end yet.
const OpenEnded = math.MaxUint64

// LostFlows reports whether Open made a map of flows: what was in an earlier one, or in one of another layout, is lost.
func (m *Maps) LostFlows() bool {
	return slices.ContainsFunc(flowMaps, func(name string) bool { return slices.Contains(m.made, name) })
}

// MidFlowGrace is until when a TCP packet in mid-flow is believed to be an answer (D-20), in nanoseconds of
// CLOCK_MONOTONIC; OpenEnded: until it is set to something else.
func (m *Maps) MidFlowGrace() (uint64, error) {
	var g bpf.Grace
	if err := m.maps[bpf.MargayMapMidflowGrace].Lookup(uint32(0), &g); err != nil {
		return 0, fmt.Errorf("read map %s: %w", bpf.MargayMapMidflowGrace, err)
	}
	return g.Until, nil
}

// SetMidFlowGrace sets it.
func (m *Maps) SetMidFlowGrace(until uint64) error {
	if err := m.maps[bpf.MargayMapMidflowGrace].Put(uint32(0), bpf.Grace{Until: until}); err != nil {
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
