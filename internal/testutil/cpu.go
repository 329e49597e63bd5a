package testutil

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// OnEachCPU calls a function once on each CPU that the process may use, one after the other, and stops at its first error.
func OnEachCPU(do func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return fmt.Errorf("read on which CPUs the test runs: %w", err)
	}
	defer func() { _ = unix.SchedSetaffinity(0, &all) }() // as before
	for cpu := range 64 * len(all) {
		if !all.IsSet(cpu) {
			continue
		}
		var one unix.CPUSet
		one.Set(cpu)
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			return fmt.Errorf("run on CPU %d: %w", cpu, err)
		}
		if err := do(); err != nil {
			return fmt.Errorf("on CPU %d: %w", cpu, err)
		}
	}
	return nil
}
