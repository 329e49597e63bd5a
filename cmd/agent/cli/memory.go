package cli

import (
	"fmt"
	"math"
)

// What the agent takes beside its maps, in bytes, with programs, buffers and the Go runtime; measured in
// bench/results/cluster.txt (anonymous memory) and under QEMU by `make kernels`.
const (
	agentLeast = 24 << 20 // no pod on the node and none elsewhere
	agentUsual = 64 << 20 // 100 pods on the node, 10,000 elsewhere
)

// judgeMemory compares what an agent is going to take with a limit, all in bytes: maps is what the maps take that it has
// to make, empty; a limit of math.MaxUint64 is none, file names it. With err the agent would be killed while it starts. A
// warning means that it may be killed later. Both are one line.
func judgeMemory(maps, limit uint64, file string) (warning string, err error) {
	if limit == math.MaxUint64 {
		return "", nil
	}
	usual := maps + agentUsual
	switch {
	case limit < maps+agentLeast:
		return "", fmt.Errorf("the memory limit of %s (%s) is too low: the maps take %s, the agent at least %s; "+
			"allow %s or more, or make maps smaller with --map-size",
			mib(limit), file, mib(maps), mib(agentLeast), mib(usual))
	case limit < usual:
		return fmt.Sprintf("the memory limit of %s (%s) is low: the maps take %s empty, the agent usually %s; allow %s or more",
			mib(limit), file, mib(maps), mib(agentUsual), mib(usual)), nil
	}
	return "", nil
}

// mib is a number of bytes for people, rounded up.
func mib(bytes uint64) string { return fmt.Sprintf("%d MiB", (bytes+1<<20-1)>>20) }
