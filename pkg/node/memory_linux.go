package node

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/cgroup"
	"github.com/margay-project/margay/pkg/config"
)

// enoughMemory logs the memory that this agent will take and its limit, and refuses a limit that cannot suffice: above it
// the kernel kills the agent without a message. Without a limit it logs nothing, so that an agent that ends for another reason logs only
// that reason; it returns the attributes to log later. Under a limit the Go runtime gets a limit too, unless GOMEMLIMIT sets one.
func enoughMemory(c config.Config, log *slog.Logger) (later []slog.Attr, err error) {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("count CPUs: %w", err)
	}
	all, missing, err := bpfmaps.NeededMemory(bpfmaps.Options{BPFFS: c.BPFFS, Instance: c.Instance, MaxEntries: c.MapSizes}, cpus)
	if err != nil {
		return nil, err
	}
	limit, err := cgroup.MemoryLimit(os.DirFS("/"))
	if err != nil { // a kernel without control groups limits nothing
		log.Warn("memory limits cannot be read", "err", err)
		return nil, nil
	}
	maps := chargedMaps(mapsMemory(all), mapsMemory(missing), limit.Bytes)
	attrs := []slog.Attr{slog.String("maps", mib(maps.Empty)), slog.String("mapsFull", mib(maps.Full)),
		slog.String("agent", mib(agentLeast)+" to "+mib(agentUsual))}
	if limit.None() {
		return append(attrs, slog.String("limit", "none")), nil
	}
	attrs = append(attrs, slog.String("limit", mib(limit.Bytes)), slog.String("limitFile", "/"+limit.File))
	warning, err := judgeMemory(maps.Empty, limit.Bytes, "/"+limit.File)
	if err == nil && os.Getenv("GOMEMLIMIT") == "" {
		soft := softLimit(maps.Empty, maps.Full, limit.Bytes)
		debug.SetMemoryLimit(int64(soft))
		attrs = append(attrs, slog.String("goLimit", mib(soft)))
	}
	log.LogAttrs(context.Background(), slog.LevelInfo, "memory needed", attrs...)
	if warning != "" {
		log.Warn(warning)
	}
	return nil, err
}
