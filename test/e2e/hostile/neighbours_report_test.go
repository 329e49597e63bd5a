package hostile

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// tenantReport compares nodes with and without a tenant.
type tenantReport struct {
	control, result comparison
	before, after   string // of the tables
}

// comparison is what was measured on each node, round by round.
type comparison struct{ rounds [conditions][]sample }

func (c *comparison) add(round [conditions]sample) {
	for i, s := range round {
		c.rounds[i] = append(c.rounds[i], s)
	}
}

// quantity is one of the things measured.
type quantity struct {
	name string
	of   func(sample) []time.Duration
	at   float64
	must bool
}

func latencyOf(s sample) []time.Duration { return s.latency }
func lateOf(s sample) []time.Duration    { return s.late }
func changeOf(s sample) []time.Duration  { return s.change }

// debounce is how long a directory waits for the next event of a file before it reads it.
const debounce = 50 * time.Millisecond

func beyondOf(s sample) (all []time.Duration) {
	for _, d := range s.change {
		all = append(all, max(d-debounce, 0))
	}
	return all
}

var quantities = []quantity{
	{"packet latency, p50", latencyOf, 0.5, true},
	{"packet latency, p99", latencyOf, 0.99, true},
	{"change to enforced, p50", changeOf, 0.5, true},
	{"change to enforced, p99", changeOf, 0.99, true},
	{"that past 50 ms, p50", beyondOf, 0.5, false},
	{"that past 50 ms, p99", beyondOf, 0.99, false},
	{"CPU kept from a clock, p50", lateOf, 0.5, false},
	{"CPU kept from a clock, p99", lateOf, 0.99, false},
}

// quantile of all rounds together.
func (q quantity) quantile(rounds []sample) time.Duration {
	var all []time.Duration
	for _, s := range rounds {
		all = append(all, q.of(s)...)
	}
	slices.Sort(all)
	return all[min(len(all)-1, int(q.at*float64(len(all))))]
}

func (q quantity) ratio(over, under []sample) float64 {
	return float64(q.quantile(over)) / float64(max(q.quantile(under), 1))
}

// ratios are those that a requirement is about.
func (c *comparison) ratios(over, under condition) map[string]float64 {
	r := map[string]float64{}
	for _, q := range quantities {
		if q.must {
			r[q.name] = q.ratio(c.rounds[over], c.rounds[under])
		}
	}
	return r
}

// byRounds is the median of the rounds' own ratios: a machine that is busy for a while concerns only some of them.
func (c *comparison) byRounds(q quantity, over, under condition) float64 {
	var all []float64
	for i := range c.rounds[over] {
		all = append(all, q.ratio(c.rounds[over][i:i+1], c.rounds[under][i:i+1]))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

func (c *comparison) table(b *strings.Builder) {
	fmt.Fprintf(b, "  %-26s %10s %10s %10s %14s %10s %11s\n", "", "without", "busy", "with", "with / without", "by rounds", "with / busy")
	for _, q := range quantities {
		fmt.Fprintf(b, "  %-26s", q.name)
		for _, rounds := range c.rounds {
			fmt.Fprintf(b, " %10v", q.quantile(rounds).Round(time.Microsecond/10))
		}
		fmt.Fprintf(b, " %14.2f %10.2f %11.2f\n", q.ratio(c.rounds[withTenant], c.rounds[without]), c.byRounds(q, withTenant, without),
			q.ratio(c.rounds[withTenant], c.rounds[withBusy]))
	}
	fmt.Fprintf(b, "  %-26s", "CPUs the agent uses")
	for _, rounds := range c.rounds {
		sum := 0.0
		for _, s := range rounds {
			sum += s.agent
		}
		fmt.Fprintf(b, " %10.2f", sum/float64(len(rounds)))
	}
	b.WriteString("\n")
}

func (r *tenantReport) text() string {
	var b strings.Builder
	rounds := r.result.rounds[without]
	fmt.Fprintf(&b, "P23: %d honest pods on a node, without and with a tenant at every limit (must: %.1f).\n", neighbours, tenantMust)
	fmt.Fprintf(&b, "make bench-tenant; %s; %d rounds of %d changes\n", time.Now().UTC().Format(time.DateOnly), len(rounds), changesARound)
	b.WriteString(`
The tenant is at its limits of rules, CIDR lists, flows and fragments, and of objects that its policy refers to: backends of a Service,
prefixes of network sets, numbers of a named port. Each second one of them or a policy changes.
The requirement is "with / without" of the first four lines. "By rounds" is the median of the rounds' own ratios. Busy is a third
node, whose tenant sends as many packets (of one flow) and writes as many manifests of the same size (of policies that select no
pod, and objects that none refers to), and is at no limit: "with / busy" is what limits and enforcement add to a tenant that merely works.
A packet's latency is that of a question and its answer, both ends in one thread of real time: no wake-up of a process is in it.
50 ms of each change are the directory's wait for the end of events, the same on all nodes. An agent that
follows the API server has no such wait, so the lines "that past 50 ms" are nearer to what its changes take.

`)
	r.result.table(&b)
	b.WriteString("\nControl: the same three nodes in as many rounds, before the tenants begin.\n\n")
	r.control.table(&b)
	fmt.Fprintf(&b, "\nTables at the start: %s\nTables at the end: %s\n", r.before, r.after)
	return b.String()
}
