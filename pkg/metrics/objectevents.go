package metrics

import "github.com/prometheus/client_golang/prometheus"

// ObjectEvent is what became of a Kubernetes Event about an object.
type ObjectEvent uint8

const (
	EventSent   ObjectEvent = iota // posted
	EventFailed                    // refused by the API server, or it could not be reached
)

// objectEvents count Kubernetes Events by what became of them.
type objectEvents struct {
	vector *prometheus.CounterVec
	counts [EventFailed + 1]prometheus.Counter // of vector
}

func newObjectEvents() objectEvents {
	vector := prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "object_events_total",
		Help: "Kubernetes Events about objects that cannot be enforced as written, by result."}, []string{"result"})
	return objectEvents{vector: vector, counts: [...]prometheus.Counter{
		EventSent: vector.WithLabelValues("sent"), EventFailed: vector.WithLabelValues("failed"),
	}}
}

func (o *objectEvents) all() []prometheus.Collector { return []prometheus.Collector{o.vector} }

// ObjectEvents counts Kubernetes Events.
func (o *objectEvents) ObjectEvents(became ObjectEvent, n int) {
	if int(became) < len(o.counts) {
		o.counts[became].Add(float64(n))
	}
}
