package cluster

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// podEnforced is the agent's own measure of P13.
const podEnforced = "margay_pod_enforced_seconds"

// await polls, more slowly than testutil.WaitFor: what it asks costs the agent something.
func (c *cluster) await(limit time.Duration, what string, done func() bool) {
	c.t.Helper()
	over := time.Now().Add(limit)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		if time.Now().After(over) {
			c.t.Fatalf("waited %v for %s", limit, what)
		}
		<-tick.C
	}
}

// gauges are what an agent says at its metrics address: values by name and labels.
type gauges map[string]float64

func (a *agent) gauges() gauges {
	a.c.t.Helper()
	status, body := a.get(metricsPort, "/metrics")
	if status != http.StatusOK {
		a.c.t.Fatalf("metrics of the agent on %s: %d %s", a.node.Name(), status, body)
	}
	g := gauges{}
	for line := range strings.Lines(body) {
		if at := strings.LastIndexByte(line, ' '); at > 0 && line[0] != '#' {
			if v, err := strconv.ParseFloat(strings.TrimSpace(line[at:]), 64); err == nil {
				g[line[:at]] = v
			}
		}
	}
	return g
}

// at is one value, such as "margay_endpoints" with `state="enforced"`; 0 if there is none.
func (g gauges) at(name, labels string) float64 {
	if labels != "" {
		name += "{" + labels + "}"
	}
	return g[name]
}

// sum is the sum over all labels.
func (g gauges) sum(name string) (total float64) {
	for key, v := range g {
		if key == name || strings.HasPrefix(key, name+"{") {
			total += v
		}
	}
	return total
}

// bucket is how many observations were at most so many seconds.
type bucket struct{ most, count float64 }

// since are the buckets of a histogram, of what was observed after the earlier scrape.
func (g gauges) since(before gauges, histogram string) (all []bucket) {
	for key, v := range g {
		text, ok := strings.CutPrefix(key, histogram+`_bucket{le="`)
		if !ok {
			continue
		}
		most, err := strconv.ParseFloat(strings.TrimSuffix(text, `"}`), 64) // +Inf is one too
		if err == nil {
			all = append(all, bucket{most, v - before[key]})
		}
	}
	slices.SortFunc(all, func(a, b bucket) int { return int(math.Copysign(1, a.most-b.most)) })
	return all
}

// within are the bounds, in seconds, between which the quantile lies.
func within(all []bucket, quantile float64) (low, high float64) {
	if len(all) == 0 {
		return math.NaN(), math.NaN()
	}
	total := all[len(all)-1].count
	for _, b := range all {
		if b.count >= quantile*total {
			return low, b.most
		}
		low = b.most
	}
	return low, math.Inf(1)
}

// cpu is the CPU time that a process has used so far.
func cpu(pid int) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|2), &ts); err != nil { // the process's clock, as clock_getcpuclockid(3) makes it
		return 0
	}
	return time.Duration(ts.Nano())
}

// procStatus is a process's memory in bytes, by its name in /proc/PID/status.
func procStatus(pid int) (map[string]float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil, err
	}
	all := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[2] == "kB" {
			if v, err := strconv.ParseFloat(f[1], 64); err == nil {
				all[strings.TrimSuffix(f[0], ":")] = v * 1024
			}
		}
	}
	return all, nil
}

// mapMemory is what the kernel charges for the BPF maps that a process has open, each counted once.
func mapMemory(pid int) (total float64, err error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	if err != nil {
		return 0, err
	}
	counted := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) { // closed meanwhile
			continue
		}
		if err != nil {
			return 0, err
		}
		fields := map[string]string{}
		for line := range strings.Lines(string(text)) {
			if key, value, ok := strings.Cut(line, ":"); ok {
				fields[key] = strings.TrimSpace(value)
			}
		}
		if id := fields["map_id"]; id != "" && !counted[id] {
			counted[id] = true
			charged, err := strconv.ParseFloat(fields["memlock"], 64)
			if err != nil {
				return 0, fmt.Errorf("%s: %w", file, err)
			}
			total += charged
		}
	}
	return total, nil
}

// live has the agent collect garbage and returns the bytes that are left on its heap, and its goroutines. It needs the
// agent's --pprof. What the agent uses for a moment, as while it reads the kernel's connections, is not left: the least of some looks counts.
func (a *agent) live() (heap, goroutines float64) {
	a.c.t.Helper()
	heap = math.Inf(1)
	for range 6 { // weak pointers and what they pointed to take more than one
		status, body := a.get(healthPort, "/debug/pprof/heap?gc=1&debug=1") // it says how it was before the profile was made
		_, rest, found := strings.Cut(body, "# HeapAlloc = ")
		value, _, _ := strings.Cut(rest, "\n")
		look, err := strconv.ParseFloat(value, 64)
		if status != http.StatusOK || !found || err != nil {
			a.c.t.Fatalf("profile of the agent on %s: %d %v", a.node.Name(), status, err)
		}
		heap = min(heap, look)
	}
	return heap, a.gauges().at("go_goroutines", "")
}

// machine is how busy the machine is.
type machine struct {
	at          time.Time
	busy, total float64 // jiffies
}

func readMachine() (m machine, err error) {
	f, err := os.Open("/proc/stat")
	if err != nil {
		return m, err
	}
	defer f.Close()
	line, err := bufio.NewReader(f).ReadString('\n')
	if err != nil {
		return m, err
	}
	for i, text := range strings.Fields(line)[1:] {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return m, err
		}
		if i < 8 { // guests are counted in user time
			m.total += v
		}
		if i < 8 && i != 3 && i != 4 { // neither idle nor waiting for a disk
			m.busy += v
		}
	}
	m.at = time.Now()
	return m, nil
}

// load is the machine's load averages.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}
