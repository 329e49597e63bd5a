//go:build linux

package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/compile/plan"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/syncer"
)

// batch is how many updates the agent's loop takes at once.
const batch = 10_000

// sample is what one first full sync, and the state it leaves, costs. Sizes are bytes.
type sample struct {
	Scenario string  `json:"scenario"`
	Local    int     `json:"local"`
	Remote   int     `json:"remote"`
	Seconds  float64 `json:"seconds"` // on the wall, from the first update to the changes
	CPU      float64 `json:"cpu"`     // seconds, garbage collection included
	Alloc    uint64  `json:"alloc"`   // in all; with the updates if they are made as they go
	Allocs   uint64  `json:"allocs"`
	WithFeed uint64  `json:"with_feed"` // live heap after it with the updates, where they are all made before
	Live     uint64  `json:"live"`      // and without them: what is kept
	PerPod   float64 `json:"per_pod"`   // kept, by remote endpoint
	RSS      uint64  `json:"rss"`       // after it, without being asked to give memory back
	Peak     uint64  `json:"peak"`      // RSS at its highest, updates included
	Out      int     `json:"out"`       // endpoints and sets told
	Changes  []step  `json:"changes,omitempty"`
}

// core is the pipeline before the kernel.
type core struct {
	graph    *calc.Graph
	buffer   *syncer.Buffer // nil: the graph alone
	compiler *plan.Compiler // likewise
	out      int
	spent    time.Duration
	cpu      float64
}

func newCore(s scenario) *core {
	c := &core{graph: calc.New(thisNode)}
	if s.agent {
		c.buffer, c.compiler = syncer.NewBuffer(), plan.New(plan.Options{}, nil)
	}
	return c
}

func (c *core) take(updates []model.Update) {
	cpu, started := cpuTime(), time.Now()
	if c.buffer == nil {
		c.flush(updates)
	} else {
		c.buffer.Put(updates)
		for part := c.buffer.Drain(batch); part != nil; part = c.buffer.Drain(batch) {
			c.flush(part)
		}
	}
	c.spent += time.Since(started)
	c.cpu += cpuTime() - cpu
}

func (c *core) flush(updates []model.Update) {
	c.graph.Apply(updates)
	changes := c.graph.Flush()
	c.out += len(changes.Endpoints) + len(changes.Sets)
	if c.compiler != nil && changes.InSync {
		c.compiler.Update(changes)
	}
}

// keep holds what is kept until now.
func (c *core) keep() { runtime.KeepAlive(c) }

// measure runs one scenario in this process, and returns what is kept, too. Making the updates is not timed.
func measure(s scenario) (sample, *core) {
	before := liveHeap()
	c := newCore(s)
	var sink func([]model.Update)
	if s.agent {
		sink = c.take
	}
	var was, is runtime.MemStats
	runtime.ReadMemStats(&was)
	f := s.feed(sink)
	out := sample{Scenario: s.name, Local: f.local, Remote: f.remote}
	if !s.agent {
		runtime.GC()
		runtime.ReadMemStats(&was)
	}
	c.take(append(f.updates, model.InSync{}))
	runtime.ReadMemStats(&is)
	out.Seconds, out.CPU = c.spent.Seconds(), c.cpu
	out.Alloc, out.Allocs, out.Out = is.TotalAlloc-was.TotalAlloc, is.Mallocs-was.Mallocs, c.out
	out.WithFeed = liveHeap() - before
	runtime.KeepAlive(f.updates)
	f.updates = nil
	out.Live = liveHeap() - before
	out.PerPod = float64(out.Live) / float64(max(1, f.remote))
	out.RSS, out.Peak = status("VmRSS"), status("VmHWM")
	if s.changes {
		out.Changes = changes(c, f.local+f.remote)
	}
	return out, c
}

func liveHeap() uint64 {
	runtime.GC()
	runtime.GC() // what finalizers and weak pointers held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func cpuTime() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// status reads a size from /proc/self/status; 0 if it is not there.
func status(field string) uint64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			kb, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				return 0
			}
			return kb << 10
		}
	}
	return 0
}

func mb(bytes uint64) string { return fmt.Sprintf("%.1f", float64(bytes)/1e6) }
