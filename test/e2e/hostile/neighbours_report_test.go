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
	atLimits        string
}

// comparison is what was measured on the one node and on the other, round by round.
type comparison struct{ alone, beside []sample }

func (c *comparison) add(alone, beside sample) {
	c.alone, c.beside = append(c.alone, alone), append(c.beside, beside)
}

// quantity is one of the things measured.
type quantity struct {
	name string
	of   func(sample) []time.Duration
	at   float64
}

var quantities = []quantity{
	{"packet latency, p50", func(s sample) []time.Duration { return s.latency }, 0.5},
	{"packet latency, p99", func(s sample) []time.Duration { return s.latency }, 0.99},
	{"change to enforced, p50", func(s sample) []time.Duration { return s.change }, 0.5},
	{"change to enforced, p99", func(s sample) []time.Duration { return s.change }, 0.99},
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

func (c *comparison) ratios() map[string]float64 {
	r := map[string]float64{}
	for _, q := range quantities {
		r[q.name] = float64(q.quantile(c.beside)) / float64(q.quantile(c.alone))
	}
	return r
}

// byRounds is the median of the rounds' own ratios: a machine that is busy for a while concerns only some of them.
func (c *comparison) byRounds(q quantity) float64 {
	var all []float64
	for i := range c.alone {
		all = append(all, float64(q.quantile(c.beside[i:i+1]))/float64(q.quantile(c.alone[i:i+1])))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

func (c *comparison) table(b *strings.Builder) {
	ratios := c.ratios()
	for _, q := range quantities {
		fmt.Fprintf(b, "  %-26s %12v %12v %8.2f %10.2f\n", q.name, q.quantile(c.alone).Round(time.Microsecond),
			q.quantile(c.beside).Round(time.Microsecond), ratios[q.name], c.byRounds(q))
	}
}

func (r *tenantReport) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "P23: %d honest pods on a node, without and with a tenant at every limit (must: %.1f).\n", neighbours, tenantMust)
	fmt.Fprintf(&b, "make bench-tenant; %s\n\n", time.Now().UTC().Format(time.DateOnly))
	fmt.Fprintf(&b, "  %-26s %12s %12s %8s %10s\n", "", "without", "with", "ratio", "by rounds")
	r.result.table(&b)
	b.WriteString("\nControl, the same two nodes before the tenant begins:\n")
	r.control.table(&b)
	fmt.Fprintf(&b, "\nIn the node's tables at the end: %s\n", r.atLimits)
	return b.String()
}
