package node

import (
	"fmt"
	"math"
)

// Memory of the agent beside its maps, in bytes, with programs, buffers and the Go runtime; measured in
// bench/results/cluster.txt (anonymous memory) and under QEMU by `make kernels`.
const (
	agentLeast = 44 << 20 // no pod on the node and none elsewhere, while it starts: Linux 7 charges it for the verification of its programs
	agentUsual = 64 << 20 // 100 pods on the node, 10,000 elsewhere
)

// mapsMemory is what maps take, in bytes: bpfmaps.Memory, which is not there on other systems.
type mapsMemory struct{ Empty, Full uint64 }

// chargedMaps are the maps that count against a limit in bytes: all there are to be, those that are pinned already included. This process
// may have made them before it restarted the agent, or a container of this pod that was killed, whose charges the pod keeps. The agent
// sees the limits of its container only, and cannot find out. If the limit is too low for all maps, an agent under it has not made them:
// it would not have started. Then only those count that are missing.
func chargedMaps(all, missing mapsMemory, limit uint64) mapsMemory {
	if limit < all.Empty+agentLeast {
		return missing
	}
	return all
}

// judgeMemory compares what an agent is going to take with a limit, all in bytes: maps is what the maps take that
// count, empty; math.MaxUint64 means no limit, file names it. With err the agent would be killed while it starts. A
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

// softLimit is the memory limit of the Go runtime under a limit of the process, all in bytes. It is nine tenths of the
// memory that full maps leave or, if that is more, of half the memory that empty maps leave, since maps are hardly ever
// full. It is no less than an agent usually takes, as long as that much is free. Near it the runtime collects garbage more
// often, instead of growing until the kernel kills the process. judgeMemory must have accepted the limit.
func softLimit(empty, full, limit uint64) uint64 {
	free := limit - empty
	left := max(agentUsual, free/2)
	if limit > full {
		left = max(left, limit-full)
	}
	return min(left, free) / 10 * 9
}

// mib is a number of bytes for people, rounded up.
func mib(bytes uint64) string { return fmt.Sprintf("%d MiB", (bytes+1<<20-1)>>20) }
