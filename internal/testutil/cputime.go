package testutil

import (
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"
)

// CPUTime is what this process has used of the CPUs so far, in the kernel and outside of it. Unlike time, it does not depend on
// what other processes do; it does on what the host of a virtual machine does.
func CPUTime(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// How often LeastCPUTime runs something.
const leastRuns, mostRuns = 3, 12

// LeastCPUTime is the least CPU time that do took in some runs, each after a collection of garbage: the next collection may be part of
// one of them. On a virtual machine the time in which its host has taken the CPU away counts, too. So there are more runs until a second
// one has taken about as little. Ratios of such times say how the cost of something grows, on a machine of any speed.
func LeastCPUTime(t testing.TB, do func()) time.Duration {
	t.Helper()
	var all []time.Duration
	for len(all) < leastRuns || len(all) < mostRuns && all[1] > all[0]+all[0]/10 {
		runtime.GC()
		began := CPUTime(t)
		do()
		all = append(all, CPUTime(t)-began)
		slices.Sort(all)
	}
	return all[0]
}
