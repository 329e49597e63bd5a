package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// sweeps are the metrics of removing expired flows.
type sweeps struct {
	duration prometheus.Histogram
	failures prometheus.Counter
}

func newSweeps() sweeps {
	return sweeps{
		duration: histogram("sweep_duration_seconds", "One step of removing expired flows, at most about a millisecond of work.", quick()),
		failures: counter("sweep_failures_total", "Steps of removing expired flows that failed."),
	}
}

func (s *sweeps) all() []prometheus.Collector { return []prometheus.Collector{s.duration, s.failures} }

// Swept notes one turn at removing expired flows.
func (s *sweeps) Swept(took time.Duration, err error) {
	s.duration.Observe(took.Seconds())
	if err != nil {
		s.failures.Inc()
	}
}
