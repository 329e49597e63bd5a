package main

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/internal/cgroup"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/config"
)

// enoughMemory says what memory this agent will take and what it may, and refuses a limit that cannot suffice: past it
// the kernel kills the agent without a word. Maps that are pinned are another agent's, and count nowhere.
func enoughMemory(c config.Config, log *slog.Logger) error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count CPUs: %w", err)
	}
	missing, err := bpfmaps.MissingMemory(bpfmaps.Options{BPFFS: c.BPFFS, Instance: c.Instance, MaxEntries: c.MapSizes}, cpus)
	if err != nil {
		return err
	}
	limit, err := cgroup.MemoryLimit(os.DirFS("/"))
	if err != nil { // a kernel without control groups limits nothing
		log.Warn("memory: limits are not known", "err", err)
		return nil
	}
	says := []any{"maps", mib(missing.Empty), "maps-full", mib(missing.Full), "agent", mib(agentLeast) + " to " + mib(agentUsual)}
	if limit.None() {
		says = append(says, "limit", "none")
	} else {
		says = append(says, "limit", mib(limit.Bytes), "limit-file", "/"+limit.File)
	}
	log.Info("memory needed", says...)
	warning, err := judgeMemory(missing.Empty, limit.Bytes, "/"+limit.File)
	if warning != "" {
		log.Warn(warning)
	}
	return err
}
