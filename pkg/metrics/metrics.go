// Package metrics counts what the agent does, for Prometheus. Events are pushed by the methods of Metrics; numbers of
// things that exist are read at each scrape. docs/metrics.md describes every metric to users.
package metrics

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/margay-project/margay/pkg/dataplane"
)

// readWithin is how long a scrape waits for the agent's loop, which may be busy with a large change. After that it gets
// the numbers of the scrape before.
const readWithin = 500 * time.Millisecond

// countWithin bounds the time in which a scrape counts entries of kernel maps.
const countWithin = 2 * time.Second

// Counters reads what the programs in the kernel count. *dataplane.Counters is one.
type Counters interface {
	Read(context.Context) (dataplane.KernelCounts, error)
}

// Options are what the metrics come from.
type Options struct {
	// Read returns the present state. It is called for every scrape, by one goroutine at a time, and gives up when its
	// context ends. With an error the snapshot lacks the loop's parts (Graph, Dataplane, Staged).
	Read     func(context.Context) (Snapshot, error)
	Counters Counters     // nil: nothing in the kernel counts
	Log      *slog.Logger // nil: nothing is logged

	Version, Dataplane, Node string // of build information
	Chosen                   string // how the dataplane was chosen; empty: not known
	Started                  time.Time

	// EndpointDrops adds dropped packets by endpoint and direction: two series for each local endpoint that dropped
	// something, 1,000 endpoints at most. Snapshot.Dataplane.Interfaces is needed for it.
	EndpointDrops bool
}

// Metrics are the metrics of one agent, in a registry of their own. Safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	log      *slog.Logger
	pushed
}

// New returns metrics that are all zero. Nothing is read before the first scrape.
func New(o Options) (*Metrics, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	m := &Metrics{registry: prometheus.NewRegistry(), log: o.Log, pushed: newPushed()}
	errs := []error{
		m.registry.Register(collectors.NewGoCollector()),
		m.registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})),
		m.registry.Register(&scrape{o: o}),
	}
	for _, c := range m.pushed.all() {
		errs = append(errs, m.registry.Register(c))
	}
	return m, errors.Join(errs...)
}

// Handler answers scrapes. A few at a time, so that no client keeps the agent busy by asking.
func (m *Metrics) Handler() http.Handler {
	scrapes := promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(m.log.Handler(), slog.LevelWarn),
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: 3,
		EnableOpenMetrics:   true,
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { scrapes.ServeHTTP(answer{w}, r) })
}

// answer hides that a client does not read it to its end: promhttp logs each metric family that cannot be written, and a
// client could so fill the log.
type answer struct{ http.ResponseWriter }

// Write implements io.Writer.
func (a answer) Write(p []byte) (int, error) {
	_, _ = a.ResponseWriter.Write(p)
	return len(p), nil
}

// Routes adds /metrics to mux.
func (m *Metrics) Routes(mux *http.ServeMux) { mux.Handle("GET /metrics", m.Handler()) }
