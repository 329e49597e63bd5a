package testutil

import (
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
