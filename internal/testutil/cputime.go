package testutil

import (
	"math"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// CPUTime is what this process has used of the CPUs so far, in the kernel and outside of it. Unlike time, it does not depend on
// what else the machine does.
func CPUTime(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// LeastCPUTime is the least CPU time that do took in three runs, each after a collection of garbage: the next collection may be part of
// one of them. Ratios of such times say how the cost of something grows, on a machine of any speed.
func LeastCPUTime(t testing.TB, do func()) time.Duration {
	t.Helper()
	least := time.Duration(math.MaxInt64)
	for range 3 {
		runtime.GC()
		began := CPUTime(t)
		do()
		least = min(least, CPUTime(t)-began)
	}
	return least
}
