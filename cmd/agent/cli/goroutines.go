package cli

import (
	"os"
	"runtime"
)

// leastThreads is how many goroutines the agent runs at a time at least: the loop, the source, a large manifest, and the garbage
// collection.
const leastThreads = 4

// shareCPUs has the kernel divide few CPUs between the agent's goroutines. Go would let one of them run for 10 ms before
// another gets its turn, after each system call, too: on two CPUs, changes waited behind the parsing of large manifests. GOMAXPROCS in the
// environment has precedence, and so has a limit of CPU time, by which Go chooses fewer than there are CPUs.
func shareCPUs() {
	if n := threads(runtime.GOMAXPROCS(0), runtime.NumCPU(), os.Getenv("GOMAXPROCS")); n > 0 {
		runtime.GOMAXPROCS(n)
	}
}

// threads returns how many goroutines are to run at a time, given how many Go has chosen for a number of CPUs; 0: as many as Go has chosen.
func threads(chosen, cpus int, environment string) int {
	if environment != "" || chosen < cpus || chosen >= leastThreads {
		return 0
	}
	return leastThreads
}
