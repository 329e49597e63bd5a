package bpf_test

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/bpf"
)

const (
	sweepMust   = time.Millisecond
	sweepPasses = 8 // at most
)

// TestEachPartOfASweepIsShort: a sweep of 500,000 flows is some 1,000 runs of a program, each of which the agent has look at 512 flows at
// most. 99 of 100 runs take a millisecond at most, of either family, whether the flows live or have all expired. It is CPU
// time, in which a run may be stopped by the host of the machine, and handle packets of others: on a busy machine, several runs in a hundred.
// So of each part the shortest run of several passes counts.
func TestEachPartOfASweepIsShort(t *testing.T) {
	m := manyFlows(t)
	for _, what := range []string{"living", "expired"} {
		least := map[string][]time.Duration{} // of each part, in order
		for pass, long := 0, true; long && pass < sweepPasses; pass++ {
			if what == "expired" {
				m.fill(t, seenLongAgo)
			}
			long = false
			for table := range sweeps {
				took := m.timeParts(t, table)
				if len(took) < sweptFlows/bpf.WalkedKeys {
					t.Fatalf("%d runs for %d flows", len(took), sweptFlows)
				}
				least[table] = shortest(least[table], took)
				all := slices.Sorted(slices.Values(least[table]))
				t.Logf("%s, %s, pass %d: %d runs, %s of CPU time", table, what, pass, len(took), quantiles(all))
				long = long || all[len(all)*99/100] > sweepMust
			}
			if long && pass == sweepPasses-1 {
				t.Errorf("%s: one run in a hundred takes more than %v of CPU time", what, sweepMust)
			}
		}
	}
	for table := range sweeps {
		if key, err := m.Maps[table].NextKeyBytes(nil); err != nil || key != nil {
			t.Errorf("%s has flows although all have expired: %v", table, err)
		}
	}
}

// shortest is of each part of a sweep the shorter of two runs. The last parts of one sweep may not be there in the other.
func shortest(a, b []time.Duration) []time.Duration {
	if a == nil {
		return b
	}
	both := make([]time.Duration, min(len(a), len(b)))
	for i := range both {
		both[i] = min(a[i], b[i])
	}
	return both
}

// timeParts sweeps a table, and returns how much CPU time each run of the program took.
func (m *machine) timeParts(t *testing.T, table string) (took []time.Duration) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	m.walkIn(t, sweeps[table], table, func(run func()) {
		before := threadTime(t)
		run()
		took = append(took, threadTime(t)-before)
	})
	return took
}

// threadTime is the CPU time of the calling thread.
func threadTime(t *testing.T) time.Duration {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		t.Fatal(err)
	}
	return time.Duration(now.Nano())
}
