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
// environment has precedence.
func shareCPUs() {
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) < leastThreads {
		runtime.GOMAXPROCS(leastThreads)
	}
}
