package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// latencies are how long users wait for their changes.
type latencies struct{ change, pod prometheus.Histogram }

func newLatencies() latencies {
	// Finer where the targets are.
	buckets := []float64{.001, .002, .005, .01, .02, .03, .05, .075, .1, .15, .2, .3, .5, .75, 1, 1.5, 2, 3, 5, 10, 30, 60}
	return latencies{
		change: histogram("change_enforced_seconds",
			"From receiving a change from the datastore to enforcing it and everything received with it.", buckets),
		pod: histogram("pod_enforced_seconds",
			"From receiving the address of a new local pod to enforcing both directions of its policy.", buckets),
	}
}

func (l *latencies) all() []prometheus.Collector { return []prometheus.Collector{l.change, l.pod} }

// ChangeEnforced notes how long a change has waited until everything that came with it was enforced.
func (l *latencies) ChangeEnforced(waited time.Duration) { l.change.Observe(waited.Seconds()) }

// PodEnforced notes how long a new local pod has waited since its address appeared until it was enforced.
func (l *latencies) PodEnforced(waited time.Duration) { l.pod.Observe(waited.Seconds()) }
