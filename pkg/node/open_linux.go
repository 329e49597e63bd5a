package node

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"

	"github.com/margay-project/margay/pkg/agent"
	"github.com/margay-project/margay/pkg/attach"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/config"
	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/dataplane"
	bpfplane "github.com/margay-project/margay/pkg/dataplane/bpf"
	"github.com/margay-project/margay/pkg/dataplane/record"
	"github.com/margay-project/margay/pkg/further"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/metrics"
	"github.com/margay-project/margay/pkg/shares"
	"github.com/margay-project/margay/pkg/verify"
)

// Dataplane is a dataplane with what the rest of the agent asks of it.
type Dataplane struct {
	dataplane.Dataplane
	Inspect   inspect.Dataplane
	Chosen    inspect.Choice
	Verify    verify.Kernel                // nil: there is nothing to verify
	Counters  metrics.Counters             // nil: nothing counts
	Observe   func(dataplane.Observer)     // called once, before the first Apply
	Routes    <-chan map[netip.Addr]string // of the node; nil: not known
	Overtaken func() map[uint32]bool       // interfaces where programs of others run before ours, as last seen; nil: there can be none
	Looks     []agent.Look                 // what may keep this dataplane from enforcing policy as it is written
	Addresses int                          // entries of the smallest map of addresses; 0: it has none
	Memory    []slog.Attr                  // memory needed, to be logged; nil: not, or it is logged
	held      *held
	records   records
}

// Close releases the dataplane with all that was acquired for it. Enforced policy stays in force.
func (d *Dataplane) Close() error { return d.held.release() }

// Open opens the dataplane that is configured, or that this node can have.
func Open(c config.Config, log *slog.Logger) (*Dataplane, error) {
	if c.Dataplane == "auto" {
		return openAuto(c, log)
	}
	opened, err := openNamed(c, log)
	if err == nil {
		opened.Chosen.How = inspect.ChoiceConfigured
	}
	return opened, err
}

func openNamed(c config.Config, log *slog.Logger) (*Dataplane, error) {
	switch c.Dataplane {
	case "record":
		return open(composeRecord, c, log)
	case "iptables":
		return open(composeIPTables, c, log)
	}
	return open(composeBPF, c, log)
}

// composition opens one dataplane and adds what it acquires to held, also before it fails.
type composition func(c config.Config, h *held, log *slog.Logger) (*Dataplane, error)

// open opens a dataplane, or releases what its composition acquired before it failed.
func open(compose composition, c config.Config, log *slog.Logger) (*Dataplane, error) {
	h := &held{}
	d, err := compose(c, h, log)
	if err != nil {
		return nil, errors.Join(err, h.release())
	}
	d.held = h
	return d, nil
}

func composeRecord(c config.Config, _ *held, log *slog.Logger) (*Dataplane, error) {
	log.Warn("the dataplane records and enforces nothing: pods are as open as they were", "dataplane", c.Dataplane)
	d := record.New(c.Config, log)
	return &Dataplane{Dataplane: d, Inspect: d.Inspector(), Observe: func(dataplane.Observer) {}, Looks: looks(bpfMarks(c), ipvsFindings)}, nil
}

// routesOut returns a reader of the node's routes to endpoints with further sources.
func routesOut(log *slog.Logger) shares.Routes {
	return func(interfaces map[string]bool) ([]further.Route, error) {
		return attach.RoutesOut(attach.WatchOptions{Logger: log}, interfaces)
	}
}

// watchRoutes reports the node's routes to workload interfaces until watching ends, which it does at the release.
func watchRoutes(c config.Config, h *held, log *slog.Logger) (watching context.Context, routes <-chan map[netip.Addr]string, err error) {
	watching, cancel := context.WithCancel(context.Background())
	h.add(func() error {
		cancel()
		return nil
	})
	routes, err = attach.WatchRoutes(watching, attach.WatchOptions{Logger: log}, c.InterfacePrefix)
	return watching, routes, err
}

// limit removes connections beyond the shares of endpoints until ctx ends. It reads the table for longer than the loop can wait, so the
// connection to the table is its own.
func limit(ctx context.Context, limiter *shares.Limiter, table *conntrack.Later) {
	defer table.Close()
	limiter.Run(ctx)
}

func composeBPF(c config.Config, h *held, log *slog.Logger) (*Dataplane, error) {
	memory, err := enoughMemory(c, log)
	if err != nil {
		return nil, err
	}
	host, err := bpfplane.OpenLinux(c.InterfacePrefix, log)
	if err != nil {
		return nil, err
	}
	d, err := bpfplane.OpenBPF(c.Config, host, log)
	if err != nil {
		return nil, errors.Join(refusal(err, c.BPFFS), host.Close())
	}
	h.add(d.Close) // closes the host, too
	remove, err := afterIPTables(context.Background(), d, c, log)
	if err != nil {
		return nil, err
	}
	if beside := besideChains(c); beside != "" {
		log.Warn(beside)
	}
	watching, routes, err := watchRoutes(c, h, log)
	if err != nil {
		return nil, err
	}
	ahead := &overtaken{linkDir: d.Maps().LinkDir()}
	table := conntrack.OpenLater()
	go limit(watching, bpfplane.Limiter(d, table, routesOut(log)), table)
	return &Dataplane{Dataplane: &successor{Dataplane: d, remove: remove}, Inspect: d.Inspector(), Verify: d.Verifier(), Counters: d.Counters(),
		Observe: d.Observe, Routes: routes, records: recordsOfEvents(d.Maps()), Overtaken: ahead.seen, Looks: append(looks(bpfMarks(c), ipvsFindings), ahead.look()), Addresses: bpfmaps.SmallestOfAddresses(d.Maps().MaxEntries), Memory: memory}, nil
}
