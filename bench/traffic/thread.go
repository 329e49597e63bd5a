//go:build linux

// Package traffic measures what a packet, a request and a connection between two pods cost in CPU time:
// real sockets in network namespaces, both ends on one core, the whole path charged to the two threads that use them.
//
//   - thread.go, socket.go: threads that stay on a core, sockets without Go's scheduler
//   - workload.go: what is measured
//   - scene.go: nodes and pods; margay.go, iptables.go, empty.go: what is done to their packets
//   - nodes.go: pods on two nodes, beside kube-proxy's rules
//   - rules.go: the rules all of them get; verify.go: whether a run exercised what it was meant to
package traffic

import (
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// thread is an operating-system thread that stays on one core and before everything else there.
type thread struct {
	jobs chan func()
	// RealTime says whether nothing else gets between: with it the two threads only ever give way to each other.
	realTime bool
}

// newThread starts one; close jobs to end it.
func newThread(core int) (*thread, error) {
	t := &thread{jobs: make(chan func())}
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		var set unix.CPUSet
		set.Set(core)
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			failed <- fmt.Errorf("stay on core %d: %w", core, err)
			return
		}
		t.realTime = setFIFO() == nil
		failed <- nil
		for job := range t.jobs {
			job()
		}
	}()
	return t, <-failed
}

func setFIFO() error {
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}
	return unix.SchedSetAttr(0, &attr, 0)
}

// result of a job.
type result struct {
	cpu time.Duration
	err error
}

// start runs fn on the thread; the channel delivers what CPU time it took.
func (t *thread) start(fn func() error) <-chan result {
	done := make(chan result, 1)
	t.jobs <- func() {
		before := threadCPU()
		err := fn()
		done <- result{threadCPU() - before, err}
	}
	return done
}

// threadCPU is the CPU time of the calling thread so far, softirqs it was interrupted by included.
func threadCPU() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return 0 // cannot fail: the clock exists and the pointer is good
	}
	return time.Duration(ts.Nano())
}
