package cli

import (
	"runtime"
	"testing"
)

// On few CPUs the agent runs more goroutines than Go would by itself. What the environment demands counts.
func TestFewCPUsAreShared(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, c := range []struct {
		environment      string
		before, expected int
	}{
		{"", 1, leastThreads},
		{"", 2, leastThreads},
		{"", leastThreads + 1, leastThreads + 1},
		{"2", 2, 2},
	} {
		t.Setenv("GOMAXPROCS", c.environment)
		runtime.GOMAXPROCS(c.before)
		shareCPUs()
		if got := runtime.GOMAXPROCS(0); got != c.expected {
			t.Errorf("%d goroutines at a time with %d before and GOMAXPROCS=%q, want %d", got, c.before, c.environment, c.expected)
		}
	}
}
