// Package kubernetes brings the objects of an API server.
package kubernetes

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/kube"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/syncer"
	"github.com/margay-project/margay/pkg/validate"
)

// Source is a syncer.Source whose datastore is an API server. Every kind of object is listed and watched on its own, by
// client-go's Reflector; what arrives is converted at once, and of each object only its name and version are kept, not
// the object.
//
// One kind that fails leaves the others running: it is reported, keeps the objects it had, and is tried again. Required
// kinds (package kinds) must have been listed once before InSync is sent, since without them a verdict could be too open.
// The other kinds hold it up only while their first list is on its way.
//
// An object that became invalid stays as it was last good and is a Problem (semantics D-1); deleting it removes both.
//
// While the server cannot be reached no object is withdrawn. One gate for all kinds probes it every 0.3 to 0.6 s. When
// it is back, all kinds resume their watches where they ended, or list again if the server does not have the changes
// since then any more, or not yet (history). A list that replaces another finds the objects that were deleted meanwhile.
//
// An agent has a watch for each kind that is served, all on one connection, and restarts each every five to ten minutes. While the
// server is away, it tries to connect two or three times in a second. For a kind that fails it sends one request every 15 to 30 s
// in the long run. For absent kinds see ProbeEvery. When a tier is made where Calico's first group is read, it lists the four kinds of
// policy that have tiers once again, at some time of the next 6 to 12 s.
type Source struct {
	// ProbeEvery is how often, on average, absent kinds are asked for. Each agent chooses a time between half and one
	// and a half of it again every time, for all of them. It costs one GET of /apis: at the default of two minutes, 5,000
	// agents ask 42 times in a second. An agent that reads the second of Calico's groups looks at the same times whether it
	// is to change to the first. One that reads the first asks for the names of policies of the second every six to nine hours
	// (comparison). To be set before Run.
	ProbeEvery time.Duration

	client *kube.Client
	log    *slog.Logger
	gate   *gate
	// discovery is what the kinds ask that a cluster may not serve.
	discovery *discovery
	// groups decide where the kinds are read that a cluster may serve in two groups.
	groups *groups
	kinds  []*kind

	// How long kinds that are not required may hold up InSync once the required ones are listed: while they fail, and
	// while they are slow.
	patience, slowPatience time.Duration

	changed   chan struct{} // holds a token when it may be time for InSync
	reporting chan struct{} // holds a token when there may be something to report of kinds

	delivering sync.Mutex // held while sink runs
	sink       func(syncer.Batch)
	reported   []syncer.KindStatus // last
}

// New returns a source for the server. pods say how pods are read. It does no I/O.
func New(client *kube.Client, pods validate.Pods, log *slog.Logger) *Source {
	s := &Source{
		client: client, log: log, discovery: newDiscovery(client),
		patience: 5 * time.Second, slowPatience: 30 * time.Second,
		ProbeEvery: 2 * time.Minute,
		changed:    make(chan struct{}, 1),
		reporting:  make(chan struct{}, 1),
	}
	s.groups = newGroups(client, s.discovery, log)
	s.gate = newGate(s.discovery.askReady, client.Explain, s.noteReport, log)
	strings := &recent{}
	for _, k := range kinds.Served(pods) {
		made := newKind(k, s, newSharing(strings))
		s.kinds = append(s.kinds, made)
		s.groups.add(made)
	}
	return s
}

// Run implements syncer.Source. It fails only if no client can be made of the configuration.
func (s *Source) Run(ctx context.Context, sink func(syncer.Batch)) error {
	s.sink = sink
	s.deliver(nil) // how it stands with all kinds
	apis := make([][]api, len(s.kinds))
	for i, k := range s.kinds {
		for _, gvr := range k.places {
			a, err := openAPI(s.client, gvr, k.Kind)
			if err != nil {
				return fmt.Errorf("client for %s: %w", k.Ref, err)
			}
			apis[i] = append(apis[i], a)
		}
	}
	s.gate.history.api = apis[slices.IndexFunc(s.kinds, func(k *kind) bool { return k.Name == "Namespace" })][0]
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.gate.start(ctx, &running)
	for i, k := range s.kinds {
		running.Go(func() { k.run(ctx, apis[i]) })
	}
	running.Go(func() { s.awaitLists(ctx) })
	running.Go(func() { s.compareGroups(ctx) })
	running.Go(func() { s.groups.relisting.run(ctx) })
	running.Go(func() { s.report(ctx) })
	<-ctx.Done()
	return nil
}

// statuses are how it stands with each kind now.
func (s *Source) statuses() []syncer.KindStatus {
	all := make([]syncer.KindStatus, 0, len(s.kinds))
	outage := s.gate.outage()
	for _, k := range s.kinds {
		all = append(all, k.during(outage))
	}
	return all
}

// deliver passes updates on, together with changed problems and states of kinds. It blocks while the consumer does.
func (s *Source) deliver(updates []model.Update) {
	s.delivering.Lock()
	defer s.delivering.Unlock()
	b := syncer.Batch{Updates: updates}
	now := s.statuses()
	for i, k := range s.kinds {
		b.Problems = append(b.Problems, k.store.drainFindings(i)...)
		if s.reported == nil || s.reported[i] != now[i] {
			b.Kinds = append(b.Kinds, now[i])
		}
	}
	s.reported = now
	if len(b.Updates)+len(b.Problems)+len(b.Kinds) > 0 {
		s.sink(b)
	}
}

// report delivers changed problems and states of kinds until ctx ends.
func (s *Source) report(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.reporting:
			s.deliver(nil)
		}
	}
}

// noteReport says that there may be something to report.
func (s *Source) noteReport() {
	select {
	case s.reporting <- struct{}{}:
	default: // a token is there already
	}
}

// noteChange says that it may be time for InSync.
func (s *Source) noteChange() {
	s.noteReport()
	select {
	case s.changed <- struct{}{}:
	default: // a token is there already
	}
}

// awaitLists sends InSync once the barrier is reached. Whatever a kind lists is delivered before it counts as listed.
func (s *Source) awaitLists(ctx context.Context) {
	var complete time.Time // when the required kinds were listed
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
		case <-again.C:
		}
		waits, required := time.Duration(0), false
		for _, k := range s.kinds {
			required = required || k.Required && !k.snapshot().Listed
		}
		if required {
			continue
		}
		if complete.IsZero() {
			complete = time.Now()
		}
		for _, k := range s.kinds {
			waits = max(waits, k.holdsUp(complete, s.patience, s.slowPatience))
		}
		if waits == 0 {
			s.deliver([]model.Update{model.InSync{}})
			return
		}
		again.Reset(waits)
	}
}
