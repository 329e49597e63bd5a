package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/margay-project/margay/pkg/dataplane"
)

const prefix = "margay_"

// pushed are the metrics of occurrences: they are counted when something happens, not read by a scrape.
type pushed struct {
	loop
	latencies
	sweeps
	objectEvents
	verifications
}

func newPushed() pushed {
	return pushed{newLoop(), newLatencies(), newSweeps(), newObjectEvents(), newVerifications()}
}

func (p *pushed) all() []prometheus.Collector {
	return slices.Concat(p.loop.all(), p.latencies.all(), p.sweeps.all(), p.objectEvents.all(), p.verifications.all())
}

var _ dataplane.Observer = (*Metrics)(nil)

// quick are buckets for durations from 0.1 ms to 26 s.
func quick() []float64 { return prometheus.ExponentialBuckets(0.0001, 2, 19) }

func histogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: prefix + name, Help: help, Buckets: buckets})
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + name, Help: help})
}
