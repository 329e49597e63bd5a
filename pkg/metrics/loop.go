package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// loop are the metrics of changes on their way from the datastore to the kernel: one for each stage.
type loop struct {
	updates                        prometheus.Counter
	flush, compile, publish, apply prometheus.Histogram
	retries, reopens               prometheus.Counter
	applies                        *prometheus.CounterVec
	applied, failed                prometheus.Counter // of applies
}

func newLoop() loop {
	applies := prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "applies_total",
		Help: "Attempts to enforce the desired state, by result."}, []string{"result"})
	return loop{
		updates: counter("updates_total", "Changes of objects received from the datastore."),
		flush:   histogram("flush_duration_seconds", "Calculating what the endpoints of this node must enforce, per batch of changes.", quick()),
		compile: histogram("compile_duration_seconds", "Turning changes into the writes they need.", quick()),
		publish: histogram("publish_duration_seconds", "Writing one batch of changes to the kernel.", quick()),
		apply:   histogram("apply_duration_seconds", "One whole attempt to enforce the desired state.", quick()),
		retries: counter("apply_retries_total", "Attempts to enforce that repeat a failed one."),
		reopens: counter("reopens_total", "Times the agent restarted from the state in the kernel, because changes that cannot be written held up others."),
		applies: applies, applied: applies.WithLabelValues("ok"), failed: applies.WithLabelValues("failed"),
	}
}

func (l *loop) all() []prometheus.Collector {
	return []prometheus.Collector{l.updates, l.flush, l.compile, l.publish, l.apply, l.retries, l.reopens, l.applies}
}

// Drained counts updates that the loop has taken from the source.
func (l *loop) Drained(updates int) { l.updates.Add(float64(updates)) }

// Flushed notes one flush of the calculation graph.
func (l *loop) Flushed(took time.Duration) { l.flush.Observe(took.Seconds()) }

// Compiled implements dataplane.Observer.
func (l *loop) Compiled(took time.Duration) { l.compile.Observe(took.Seconds()) }

// Published implements dataplane.Observer.
func (l *loop) Published(took time.Duration) { l.publish.Observe(took.Seconds()) }

// Applied notes one attempt to enforce, and whether it repeats a failed one.
func (l *loop) Applied(took time.Duration, retry bool, err error) {
	l.apply.Observe(took.Seconds())
	if retry {
		l.retries.Inc()
	}
	if err != nil {
		l.failed.Inc()
		return
	}
	l.applied.Inc()
}

// Reopened notes that the agent starts over from the enforced state.
func (l *loop) Reopened() { l.reopens.Inc() }
