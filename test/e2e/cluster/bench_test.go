package cluster

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/margay-project/margay/internal/testutil"
)

// What may be set of BenchmarkCluster.
const (
	remoteEnv = "MARGAY_E2E_BENCH_REMOTE" // numbers of remote pods, rising
	localEnv  = "MARGAY_E2E_BENCH_LOCAL"  // numbers of local pods, rising
	singleEnv = "MARGAY_E2E_BENCH_SINGLE" // pods that come one by one, for each pair of those
	burstsEnv = "MARGAY_E2E_BENCH_BURSTS" // bursts of 50
	outEnv    = "MARGAY_E2E_BENCH_OUT"    // file for the results
)

const (
	inBurst = 50
	updates = 2000 // of the status of remote pods
	idleFor = 5 * time.Second
)

func numbers(b *testing.B, name, otherwise string) (all []int) {
	b.Helper()
	text := testutil.Getenv(name)
	if text == "" {
		text = otherwise
	}
	for _, part := range strings.Split(text, ",") {
		n, err := strconv.Atoi(part)
		if err != nil {
			b.Fatalf("%s: %v", name, err)
		}
		all = append(all, n)
	}
	return all
}

// site is what is measured with some number of local and remote pods.
type site struct {
	local, remote int

	inSync               time.Duration // since the agent was started
	syncCPU              time.Duration
	rss, anon, peak      float64 // bytes, some time after the start
	heap                 float64 // live, after garbage collection
	maps, tables         float64 // of the kernel's maps, and of the decision tables among them
	idle                 float64 // CPU, of one core
	perUpdates           time.Duration
	single, burst        []sample
	ownSingle, ownBurst  []bucket
	spentSingle          time.Duration // CPU of the agent per pod
	widest, widestBursts time.Duration
	load                 string
	busy                 float64 // share of the machine while pods came
}

// BenchmarkCluster measures the agent on a real cluster: how long a pod waits for its policy (P13), and what the agent
// costs, by the number of local and remote pods. Run it once: make bench-cluster.
func BenchmarkCluster(b *testing.B) {
	remote, local := numbers(b, remoteEnv, "0,10000,100000"), numbers(b, localEnv, "10,100")
	single, bursts := numbers(b, singleEnv, "100")[0], numbers(b, burstsEnv, "2")[0]
	started, atFirst, out := time.Now(), load(), testutil.Getenv(outEnv)
	c := newCluster(b, options{nodes: 1, proxy: "none", flags: measured})
	p := c.newPopulation()
	r := p.newResidents()
	a := c.nodes[0].agent
	var sites []*site
	for _, n := range remote {
		a.kill()
		grown := time.Now()
		p.grow(n)
		b.Logf("%d remote pods; these took %v", n, time.Since(grown).Round(time.Second))
		for _, m := range local {
			a.kill()
			s := &site{local: m, remote: n, load: load()}
			r.settleTo(m)
			s.start(a, r)
			s.pods(a, r, single, bursts)
			s.updates(a, p)
			sites = append(sites, s)
			b.Log(s)
			if out != "" {
				c.must(os.WriteFile(out, []byte(table(sites, atFirst, started)), 0o644))
			}
		}
		for _, gone := range r.all { // the next number begins with few again
			c.must(r.remove(b.Context(), gone))
		}
		r.all = nil
	}
	b.Log("\n" + table(sites, atFirst, started))
}

// start has an agent start on a node that never had one, and measures it when it has settled.
func (s *site) start(a *agent, r *residents) {
	c := a.c
	c.t.Helper()
	c.must(unix.Unmount(a.bpffs(), unix.MNT_DETACH), unix.Mount("bpf", a.bpffs(), "bpf", 0, ""))
	said := a.logged()
	begun := time.Now()
	c.must(a.launch())
	c.await(5*time.Minute, "the agent to be in sync", func() bool {
		return slices.ContainsFunc(a.lines(said), func(line string) bool { return strings.Contains(line, `"in sync: policy is enforced"`) })
	})
	s.inSync, s.syncCPU = time.Since(begun), cpu(a.running.PID())
	a.awaitLocal(s.local, s.remote+s.local)
	before, at := cpu(a.running.PID()), time.Now()
	pause(idleFor)
	s.idle = float64(cpu(a.running.PID())-before) / float64(time.Since(at))
	status, err := procStatus(a.running.PID())
	c.must(err)
	s.rss, s.anon, s.peak = status["VmRSS"], status["RssAnon"], status["VmHWM"]
	s.heap, _ = a.live()
	s.maps, err = mapMemory(a.running.PID())
	c.must(err)
	s.tables = a.gauges().sum("margay_table_bytes")
}

// pods measures how pods come.
func (s *site) pods(a *agent, r *residents, single, bursts int) {
	r.c.t.Helper()
	probes := r.newProbes()
	a.awaitLocal(s.local+len(probes.ends), s.remote+s.local+len(probes.ends))
	machine, err := readMachine()
	r.c.must(err)
	before, spent := a.gauges(), cpu(a.running.PID())
	s.single = probes.oneByOne(single)
	s.spentSingle = (cpu(a.running.PID()) - spent) / time.Duration(single)
	s.widest = time.Duration(probes.widest.Swap(0))
	between := a.gauges()
	s.ownSingle = between.since(before, podEnforced)
	for range bursts {
		s.burst = append(s.burst, probes.atOnce(inBurst)...)
	}
	s.ownBurst = a.gauges().since(between, podEnforced)
	s.widestBursts = time.Duration(probes.widest.Load())
	after, err := readMachine()
	r.c.must(err)
	s.busy = (after.busy - machine.busy) / (after.total - machine.total)
	probes.end()
	a.awaitLocal(s.local, s.remote+s.local)
}

// updates measures what updates of remote pods cost.
func (s *site) updates(a *agent, p *population) {
	if s.remote == 0 {
		return
	}
	a.c.t.Helper()
	const events = "margay_kind_events_total"
	seen := a.gauges().at(events, `kind="Pod"`)
	before, at := cpu(a.running.PID()), time.Now()
	n := min(updates, s.remote)
	p.shake(n, corev1.ConditionFalse)
	a.c.await(time.Minute, "the agent to see all updates", func() bool { return a.gauges().at(events, `kind="Pod"`) >= seen+float64(n) })
	spent := cpu(a.running.PID()) - before - time.Duration(s.idle*float64(time.Since(at)))
	s.perUpdates = spent * 1000 / time.Duration(n)
}

func acked(s sample) time.Duration { return s.acked }
func asked(s sample) time.Duration { return s.sent }

func (s *site) String() string {
	return fmt.Sprintf("%d local, %d remote: in sync after %v; one by one p50 %v p99 %v, in bursts p50 %v p99 %v; RSS %.1f MB", s.local, s.remote, s.inSync,
		quantile(since(s.single, acked), .5), quantile(since(s.single, acked), .99),
		quantile(since(s.burst, acked), .5), quantile(since(s.burst, acked), .99), s.rss/1e6)
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/1e6) }

// bounds are those between which a quantile of the agent's histogram lies, in ms.
func bounds(all []bucket, q float64) string {
	low, high := within(all, q)
	if math.IsInf(high, 1) {
		return fmt.Sprintf("> %g", low*1e3)
	}
	return fmt.Sprintf("%g – %g", low*1e3, high*1e3)
}

// table is what the run has found, for people.
func table(sites []*site, load string, started time.Time) string {
	var out bytes.Buffer
	fmt.Fprintf(&out, "make bench-cluster   (%s, %d cores, load averages %s at the start, took %v)\n\n", started.UTC().Format("2006-01-02 15:04"),
		runtime.NumCPU(), load, time.Since(started).Round(time.Second))
	fmt.Fprintln(&out, "P13: from a pod's address in the API to its policy in both directions, ms. Must: p99 of 200 with 100 local pods; goal: 50.")
	w := tabwriter.NewWriter(&out, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "local\tremote\tpods come\tn\tp50\tp99\tlongest\tp50\tp99\tp50\tp99\tprobe gap\tload before\tmachine busy\t")
	fmt.Fprintln(w, "\t\t\t\tsince answer\t\t\tsince request\t\tby the agent\t\tat most\t\t\t")
	for _, s := range sites {
		for _, part := range []struct {
			how     string
			samples []sample
			own     []bucket
			widest  time.Duration
		}{{"one by one", s.single, s.ownSingle, s.widest}, {fmt.Sprintf("%d at once", inBurst), s.burst, s.ownBurst, s.widestBursts}} {
			answered, requested := since(part.samples, acked), since(part.samples, asked)
			fmt.Fprintf(w, "%d\t%d\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.0f %%\t\n", s.local, s.remote, part.how, len(part.samples),
				ms(quantile(answered, .5)), ms(quantile(answered, .99)), ms(quantile(answered, 1)),
				ms(quantile(requested, .5)), ms(quantile(requested, .99)), bounds(part.own, .5), bounds(part.own, .99), ms(part.widest), s.load, s.busy*100)
		}
	}
	w.Flush()
	fmt.Fprintln(&out, "\nWhat the agent costs; MB are 10^6 bytes")
	w = tabwriter.NewWriter(&out, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "local\tremote\tin sync s\tCPU s\tRSS MB\tanonymous\tpeak\tlive heap\tmaps MB\ttables kB\tidle CPU %\tCPU ms per pod that comes\tper 1,000 updates\t")
	for _, s := range sites {
		fmt.Fprintf(w, "%d\t%d\t%.2f\t%.2f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.0f\t%.2f\t%s\t%s\t\n", s.local, s.remote, s.inSync.Seconds(), s.syncCPU.Seconds(),
			s.rss/1e6, s.anon/1e6, s.peak/1e6, s.heap/1e6, s.maps/1e6, s.tables/1e3, s.idle*100, ms(s.spentSingle), ms(s.perUpdates))
	}
	w.Flush()
	fmt.Fprintln(&out, "\nBytes per remote pod")
	w = tabwriter.NewWriter(&out, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "local\tremote\tlive heap\tRSS\tanonymous\t")
	for _, s := range sites {
		i := slices.IndexFunc(sites, func(o *site) bool { return o.local == s.local })
		if o := sites[i]; o.remote < s.remote {
			n := float64(s.remote - o.remote)
			fmt.Fprintf(w, "%d\t%d\t%.0f\t%.0f\t%.0f\t\n", s.local, s.remote, (s.heap-o.heap)/n, (s.rss-o.rss)/n, (s.anon-o.anon)/n)
		}
	}
	w.Flush()
	return out.String()
}
