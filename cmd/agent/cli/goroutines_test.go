package cli

import "testing"

// On few CPUs the agent runs more goroutines than Go would by itself. What the environment demands counts, and a limit of CPU time.
func TestFewCPUsAreShared(t *testing.T) {
	for _, c := range []struct {
		chosen, cpus int
		environment  string
		want         int
	}{
		{1, 1, "", leastThreads},
		{2, 2, "", leastThreads},
		{2, 16, "", 0}, // a limit of CPU time
		{leastThreads + 1, leastThreads + 1, "", 0},
		{2, 2, "2", 0},
	} {
		if got := threads(c.chosen, c.cpus, c.environment); got != c.want {
			t.Errorf("%d goroutines at a time, %d chosen for %d CPUs with GOMAXPROCS=%q, want %d", got, c.chosen, c.cpus, c.environment, c.want)
		}
	}
}
