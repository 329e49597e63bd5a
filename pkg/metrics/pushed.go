package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/margay-project/margay/pkg/dataplane"
)

const prefix = "margay_"

// ObjectEvent is what became of a Kubernetes Event about an object.
type ObjectEvent uint8

const (
	EventSent   ObjectEvent = iota // posted
	EventFailed                    // refused by the API server, or it could not be reached
)

// pushed are the metrics of what happens.
type pushed struct {
	flush, compile, publish, apply, sweep prometheus.Histogram
	change, pod                           prometheus.Histogram
	updates, retries, reopens             prometheus.Counter
	sweepFailures                         prometheus.Counter
	applied, failed                       prometheus.Counter // of one vector
	events                                [EventFailed + 1]prometheus.Counter

	vectors []prometheus.Collector
}

var _ dataplane.Observer = (*Metrics)(nil)

func newPushed() pushed {
	applies := prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "applies_total",
		Help: "Attempts to enforce what is desired, by result."}, []string{"result"})
	events := prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "object_events_total",
		Help: "Kubernetes Events about objects that cannot be enforced as written, by result."}, []string{"result"})
	quick := prometheus.ExponentialBuckets(0.0001, 2, 19) // 0.1 ms to 26 s
	// Finer where the targets are.
	latency := []float64{.001, .002, .005, .01, .02, .03, .05, .075, .1, .15, .2, .3, .5, .75, 1, 1.5, 2, 3, 5, 10, 30, 60}
	return pushed{
		flush:   histogram("flush_duration_seconds", "Working out what the endpoints of this node must enforce, per batch of changes.", quick),
		compile: histogram("compile_duration_seconds", "Turning changes into the writes they need.", quick),
		publish: histogram("publish_duration_seconds", "Writing one batch of changes to the kernel.", quick),
		apply:   histogram("apply_duration_seconds", "One attempt to enforce what is desired, as a whole.", quick),
		sweep:   histogram("sweep_duration_seconds", "One turn at removing expired flows, about a millisecond of work at most.", quick),
		change: histogram("change_enforced_seconds",
			"From the arrival of a change from the datastore to everything that arrived with it being enforced.", latency),
		pod: histogram("pod_enforced_seconds",
			"From the arrival of a new local pod's address to both directions of its policy being enforced.", latency),
		updates:       counter("updates_total", "Changes of objects taken from the datastore."),
		retries:       counter("apply_retries_total", "Attempts to enforce that repeat a failed one."),
		reopens:       counter("reopens_total", "Times the agent started over from what is enforced, because changes that cannot be written kept others waiting."),
		sweepFailures: counter("sweep_failures_total", "Turns at removing expired flows that failed."),
		applied:       applies.WithLabelValues("ok"),
		failed:        applies.WithLabelValues("failed"),
		events: [...]prometheus.Counter{EventSent: events.WithLabelValues("sent"),
			EventFailed: events.WithLabelValues("failed")},
		vectors: []prometheus.Collector{applies, events},
	}
}

func histogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: prefix + name, Help: help, Buckets: buckets})
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + name, Help: help})
}

func (p *pushed) all() []prometheus.Collector {
	return append([]prometheus.Collector{p.flush, p.compile, p.publish, p.apply, p.sweep, p.change, p.pod, p.updates,
		p.retries, p.reopens, p.sweepFailures}, p.vectors...)
}

// Drained counts updates that the loop has taken from the source.
func (p *pushed) Drained(updates int) { p.updates.Add(float64(updates)) }

// Flushed notes one flush of the calculation graph.
func (p *pushed) Flushed(took time.Duration) { p.flush.Observe(took.Seconds()) }

// Compiled implements dataplane.Observer.
func (p *pushed) Compiled(took time.Duration) { p.compile.Observe(took.Seconds()) }

// Published implements dataplane.Observer.
func (p *pushed) Published(took time.Duration) { p.publish.Observe(took.Seconds()) }

// Applied notes one attempt to enforce, and whether it repeats a failed one.
func (p *pushed) Applied(took time.Duration, retry bool, err error) {
	p.apply.Observe(took.Seconds())
	if retry {
		p.retries.Inc()
	}
	if err != nil {
		p.failed.Inc()
		return
	}
	p.applied.Inc()
}

// Reopened notes that the agent starts over from what is enforced.
func (p *pushed) Reopened() { p.reopens.Inc() }

// ChangeEnforced notes how long a change has waited until everything that came with it was enforced.
func (p *pushed) ChangeEnforced(waited time.Duration) { p.change.Observe(waited.Seconds()) }

// PodEnforced notes how long a new local pod has waited since its address appeared until it was enforced.
func (p *pushed) PodEnforced(waited time.Duration) { p.pod.Observe(waited.Seconds()) }

// Swept notes one turn at removing expired flows.
func (p *pushed) Swept(took time.Duration, err error) {
	p.sweep.Observe(took.Seconds())
	if err != nil {
		p.sweepFailures.Inc()
	}
}

// ObjectEvents counts Kubernetes Events.
func (p *pushed) ObjectEvents(became ObjectEvent, n int) {
	if int(became) < len(p.events) {
		p.events[became].Add(float64(n))
	}
}
