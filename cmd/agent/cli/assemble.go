//go:build linux

package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/metadata"

	"github.com/margay-project/margay/pkg/agent"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/config"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/endpointstatus"
	"github.com/margay-project/margay/pkg/events"
	"github.com/margay-project/margay/pkg/flows"
	"github.com/margay-project/margay/pkg/health"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/kube"
	"github.com/margay-project/margay/pkg/metrics"
	"github.com/margay-project/margay/pkg/node"
	"github.com/margay-project/margay/pkg/syncer"
	"github.com/margay-project/margay/pkg/syncer/directory"
	"github.com/margay-project/margay/pkg/syncer/kubernetes"
	"github.com/margay-project/margay/pkg/validate"
)

// process is every part of an agent, put together.
type process struct {
	config   config.Config
	log      *slog.Logger
	plane    *node.Dataplane
	loop     *agent.Loop
	api      *agent.API
	health   *health.Aggregate
	metrics  *metrics.Metrics
	flows    *flows.Hub
	statuses *endpointstatus.Writer // nil: off
	events   *events.Reporter       // nil: off
	left     int                    // endpoints that were enforced when it ended
}

// assemble is the composition root: every part of the agent, in order.
func assemble(layers *config.Layers, files <-chan *config.File, level *slog.LevelVar, log *slog.Logger) (*process, error) {
	p := &process{config: layers.Config(), log: log, health: health.New(time.Now),
		flows: flows.NewHub(flows.Kept)}
	c := p.config
	source, err := p.prepare()
	if err != nil {
		return nil, err
	}
	if p.plane, err = node.Open(c, log); err != nil {
		return nil, err
	}
	name := p.plane.Inspect.Name()
	started := time.Now()
	p.metrics, err = metrics.New(metrics.Options{
		Read: func(ctx context.Context) (metrics.Snapshot, error) {
			snapshot, err := p.api.Snapshot(ctx, c.EndpointDropMetrics)
			if p.statuses != nil {
				files := p.statuses.Status()
				snapshot.CNIFiles = &metrics.CNIFiles{Written: files.Files, Failed: files.Failed}
			}
			return snapshot, err
		},
		Counters: p.plane.Counters, Log: log, Version: version(), Dataplane: name, Chosen: string(p.plane.Chosen.How), Node: c.Node, Started: started,
		EndpointDrops: c.EndpointDropMetrics,
	})
	if err != nil {
		return nil, errors.Join(err, p.plane.Close())
	}
	p.plane.Observe(p.metrics)
	if c.EndpointStatusDir != "" {
		p.statuses = endpointstatus.New(c.EndpointStatusDir, p.health.Add("cni-files", 0), log)
	}
	p.loop = agent.New(agent.Options{
		Node: c.Node, Source: source, Graph: calc.New(c.Node, graphOptions(c, p.plane.Addresses)...), Dataplane: p.plane, Log: log, Settings: layers, Files: files,
		Level: level, Metrics: p.metrics, Health: p.health, Statuses: p.statuses, Events: p.events,
		Looks: p.plane.Looks, Routes: p.plane.Routes,
	})
	p.api = &agent.API{Loop: p.loop, Health: p.health, Plane: p.plane.Inspect, Chosen: p.plane.Chosen, Flows: p.flows, Reports: p.loop.Reports(), Overtaken: p.plane.Overtaken, Node: c.Node, Version: version(), Started: started,
		Verifier: agent.NewVerifier(p.loop, p.plane.Verify, p.metrics, log)}
	p.reportChoice(name)
	log.Info("margay", "version", version(), "node", c.Node, "datastore", c.Datastore, "dir", c.Dir, "dataplane", name)
	if p.plane.Memory != nil {
		log.LogAttrs(context.Background(), slog.LevelInfo, "memory needed", p.plane.Memory...)
	}
	return p, nil
}

// graphOptions are those of the agent's graph; addresses is how many entries maps of addresses have. An API server has a Namespace for
// every pod, but its watches are independent of each other. A directory or etcd may have pods alone.
func graphOptions(c config.Config, addresses int) []calc.Option {
	options := []calc.Option{calc.WithRoom(addresses)}
	if c.Datastore == "kubernetes" {
		options = append(options, calc.AwaitNamespaces())
	}
	return options
}

// reportChoice reports if the dataplane is not the preferred one, where people look: log, readiness, and an Event on the Node.
func (p *process) reportChoice(name string) {
	chosen := p.plane.Chosen
	if chosen.How != inspect.ChoiceFallback {
		return
	}
	p.log.Warn("policy is enforced by another dataplane than the preferred one", "dataplane", name, "why", chosen.Reason)
	text := name + ": " + chosen.Reason
	p.health.Add("dataplane", 0).Report(health.Report{Live: true, Ready: true, Detail: text})
	if p.events != nil {
		p.events.Always(events.Item{Local: true, Note: true, Problem: validate.Problem{
			Ref: validate.Ref{Kind: "Node", Name: p.config.Node}, Severity: validate.Warning, Reason: "policy is enforced with " + text}})
	}
}

// prepare finds what can be found wrong with the settings before anything is opened in the kernel, and opens the datastore. It changes nothing
// and talks to no server, so that margay check does the same.
func (p *process) prepare() (syncer.Source, error) {
	if err := bpfmaps.CheckSizes(p.config.MapSizes); err != nil { // with every dataplane: auto may choose another one tomorrow
		return nil, err
	}
	return p.openSource()
}

// unusable is why no agent can start with settings that are valid each by itself; nil: nothing is known. That there is no directory of
// manifests does not count: margay check is for nodes that have none yet, too.
func unusable(c config.Config) error {
	p := &process{config: c, log: slog.New(slog.DiscardHandler)}
	_, err := p.prepare()
	if errors.Is(err, errNoDirectory) {
		return nil
	}
	return err
}

// errNoDirectory says that the datastore is a directory, and which one is not said.
var errNoDirectory = errors.New("--datastore directory needs --dir, the directory of manifests")

// openSource opens the datastore, and what else goes with its kind.
func (p *process) openSource() (syncer.Source, error) {
	switch p.config.Datastore {
	case "kubernetes":
		return p.openCluster()
	case "etcd":
		return etcdSource(p.config.Etcd, p.pods(), p.log)
	}
	if p.config.Dir == "" {
		return nil, errNoDirectory
	}
	return directory.New(p.config.Dir, p.pods(), p.log), nil
}

func (p *process) openCluster() (syncer.Source, error) {
	client, err := kube.Open(kube.Options{Kubeconfig: p.config.Kubeconfig, Version: version()})
	if err != nil {
		return nil, err
	}
	if p.config.Events {
		objects, err := client.Dynamic()
		if err != nil {
			return nil, fmt.Errorf("client for events: %w", err)
		}
		about, err := metadata.NewForConfigAndClient(client.Config, client.HTTP)
		if err != nil {
			return nil, fmt.Errorf("client for events: %w", err)
		}
		p.events = events.New(events.Options{Node: p.config.Node, Objects: objects, Metadata: about, Log: p.log})
	}
	pods := p.pods()
	pods.Node = p.config.Node
	k := kubernetes.New(client, pods, p.log)
	k.ProbeEvery = p.config.DiscoveryEvery
	return k, nil
}

// pods say how pods are read.
func (p *process) pods() validate.Pods {
	return validate.Pods{Annotator: validate.Annotator(p.config.PodAnnotations), Prefix: p.config.InterfacePrefix,
		SourceSpoofing: p.config.SourceSpoofing}
}

// run runs all parts until ctx ends or one cannot go on.
func (p *process) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.loop.Run(ctx) })
	g.Go(func() error { return p.serveTools(ctx) })
	g.Go(func() error { return p.plane.PublishRecords(ctx, p.loop, p.flows, p.log) })
	g.Go(func() error {
		p.api.Verifier.Repeat(ctx)
		return nil
	})
	probes := http.NewServeMux()
	p.health.Routes(probes)
	if p.config.PProf {
		health.Profiles(probes)
	}
	scrapes := http.NewServeMux()
	p.metrics.Routes(scrapes)
	for what, at := range map[string]struct {
		address string
		routes  *http.ServeMux
	}{"health": {p.config.HealthAddress, probes}, "metrics": {p.config.MetricsAddress, scrapes}} {
		if at.address != "" {
			g.Go(func() error { return health.Serve(ctx, what, at.address, at.routes, p.log) })
		}
	}
	if p.statuses != nil {
		g.Go(func() error { return p.statuses.Run(ctx) })
	}
	if p.events != nil {
		g.Go(func() error { return p.events.Run(ctx) })
	}
	err := g.Wait()
	for _, e := range p.plane.Endpoints() {
		if e.Condition == dataplane.Enforced {
			p.left++
		}
	}
	return errors.Join(err, p.plane.Close())
}

// toolsAgain is how often the socket of the tools is tried again.
const toolsAgain = 10 * time.Second

// serveTools answers on the agent's socket. Policy is enforced without it, too, so nothing ends for the want of it.
func (p *process) serveTools(ctx context.Context) error {
	tools := p.health.Add("tools", 0)
	said := ""
	for {
		tools.Report(health.Report{Live: true, Ready: true})
		err := p.api.Serve(ctx, filepath.Clean(node.Socket(p.config)))
		if err == nil || ctx.Err() != nil {
			return nil
		}
		tools.Report(health.Report{Live: true, Ready: true, Detail: err.Error()})
		if said != err.Error() {
			text := "tools get no answer, will try again"
			if p.config.Enforces() {
				text += "; policy is enforced all the same"
			}
			p.log.Error(text, "err", err)
			said = err.Error()
		}
		select {
		case <-ctx.Done():
		case <-time.After(toolsAgain):
		}
	}
}
