package agent

import (
	"log/slog"
	"net/netip"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/config"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/endpointstatus"
	"github.com/margay-project/margay/pkg/events"
	"github.com/margay-project/margay/pkg/health"
	"github.com/margay-project/margay/pkg/metrics"
	"github.com/margay-project/margay/pkg/syncer"
)

// Options are the parts a Loop joins.
type Options struct {
	Node      string // this node's name
	Source    syncer.Source
	Graph     *calc.Graph // owned by the loop from here on
	Dataplane dataplane.Dataplane
	Log       *slog.Logger

	// Settings are the configuration. The loop owns them until Run returns, and adds the datastore's configuration.
	Settings *config.Layers
	// Files delivers a configuration file that has changed; nil inside: it is gone. Nil: it never does.
	Files <-chan *config.File
	Level *slog.LevelVar // of Log, set as configured; nil: left alone

	Metrics  *metrics.Metrics
	Health   *health.Aggregate
	Statuses *endpointstatus.Writer // nil: no files
	Events   *events.Reporter       // nil: no events
	Looks    []Look                 // at the node
	// Routes delivers the workload interface to which the node routes each single address. Each map is complete: the
	// first has the routes at the start, and one follows every change. Nothing is enforced before the first. Nil: routes
	// are not known, and endpoints own the addresses they claim.
	Routes <-chan map[netip.Addr]string
}

// observer is one that reports on the loop. It is called by the loop after each pass, and must be quick: enforcement
// waits for it.
type observer interface {
	Observe(Outcome)
}

// newObservers are all of them, in the order in which they observe a pass.
func newObservers(o Options, reports *syncer.Reports, status *statusBox, faults nodeFaults) []observer {
	list := []observer{
		status,
		newConfigLog(o.Log, o.Level),
		&counters{o.Metrics},
		newApplyLog(o.Log, o.Settings.Config().Enforces()),
		newPolicyLog(o.Log),
		newLatency(o.Metrics),
	}
	if o.Statuses != nil {
		list = append(list, &cniFiles{files: o.Statuses})
	}
	list = append(list, faults.closed, faults.absent, newProbes(o, faults)) // probes ask about the interfaces
	if o.Events != nil {
		list = append(list, &owners{reporter: o.Events, reports: reports, metrics: o.Metrics, node: o.Node})
	}
	return list
}

// counters are the metrics of the loop.
type counters struct{ metrics *metrics.Metrics }

// Observe implements observer.
func (c *counters) Observe(o Outcome) {
	if n := len(o.Batch.Updates); n > 0 {
		c.metrics.Drained(n)
	}
	if o.Reopen != nil {
		c.metrics.Reopened()
	}
	if o.Flush != nil {
		c.metrics.Flushed(o.Flush.Took)
	}
	if o.Apply != nil {
		c.metrics.Applied(o.Apply.Took, o.Apply.Retry, o.Apply.Err)
	}
	if o.Sweep != nil {
		c.metrics.Swept(o.Sweep.Took, o.Sweep.Err)
	}
}
