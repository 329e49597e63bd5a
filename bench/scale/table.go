//go:build linux

package main

import (
	"fmt"
	"runtime"
	"strings"
	"text/tabwriter"
)

// table shows the results to people.
func table(results []sample) string {
	var b strings.Builder
	fmt.Fprintf(&b, "go run ./bench/scale   (%s, GOMAXPROCS %d; MB are 10^6 bytes)\n\n", runtime.Version(), runtime.GOMAXPROCS(0))
	for _, s := range scenarios() {
		fmt.Fprintf(&b, "%s: %s\n", s.name, s.about)
	}
	b.WriteByte('\n')
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(format string, args ...any) {
		// A strings.Builder takes everything.
		_, _ = fmt.Fprintf(w, format+"\t\n", args...)
	}
	row("scenario\tlocal\tremote\ts\tCPU s\tallocated MB\tallocs M\tlive MB\twith the feed\tbytes/remote\tRSS MB\tpeak RSS")
	for _, r := range results {
		row("%s\t%d\t%d\t%.2f\t%.2f\t%s\t%.2f\t%s\t%s\t%.0f\t%s\t%s", r.Scenario, r.Local, r.Remote, r.Seconds, r.CPU, mb(r.Alloc),
			float64(r.Allocs)/1e6, mb(r.Live), mb(r.WithFeed), r.PerPod, mb(r.RSS), mb(r.Peak))
	}
	_ = w.Flush()
	for _, r := range results {
		if len(r.Changes) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\nOne change or question, %s with %d remote pods\n", r.Scenario, r.Remote)
		row("\tmedian CPU µs\tp99\tbytes\tallocs")
		for _, c := range r.Changes {
			row("%s\t%.1f\t%.1f\t%d\t%d", c.Name, c.Micros, c.P99, c.Bytes, c.Allocs)
		}
		_ = w.Flush()
	}
	return b.String()
}
