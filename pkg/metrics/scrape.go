package metrics

import (
	"context"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/syncer"
	"github.com/margay-project/margay/pkg/validate"
)

// mostEndpoints bounds the series of dropped packets by endpoint.
const mostEndpoints = 1000

// scrape collects how much there is of everything.
type scrape struct {
	o Options

	mu     sync.Mutex // guards all below, and has one scrape at a time
	last   Snapshot
	at     time.Time // of the loop's parts in last; zero: it has none
	staged stagedTotals
	failed [2]float64
	logged [2]bool // of failed: in the log
}

// Describe implements prometheus.Collector. It names nothing: which series there are is known when they are collected.
func (s *scrape) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (s *scrape) Collect(to chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := sink(to)
	out.put(buildInfo, 1, s.o.Version, s.o.Dataplane, s.o.Node)
	if s.o.Chosen != "" {
		out.put(choice, 1, s.o.Dataplane, s.o.Chosen)
	}
	out.put(startTime, float64(s.o.Started.UnixNano())/1e9)
	now := time.Now()
	s.read(now)
	kernel, haveKernel := s.count()
	out.put(readFailures, s.failed[0], "agent")
	out.put(readFailures, s.failed[1], "kernel")
	out.agent(&s.last)
	out.kinds(s.last.Kinds, now)
	if s.last.Problems != nil {
		out.problems(s.last.Problems)
	}
	if !s.at.IsZero() {
		out.put(snapshotAge, now.Sub(s.at).Seconds())
		out.loop(&s.last)
		out.staged(&s.staged)
	}
	if haveKernel {
		out.kernel(&kernel)
		if s.o.EndpointDrops {
			out.endpointDrops(&kernel, &s.last.Dataplane)
		}
	}
}

// read replaces the last snapshot by a new one, as much of it as there is in time.
func (s *scrape) read(now time.Time) {
	ctx, cancel := context.WithTimeout(context.Background(), readWithin)
	defer cancel()
	snapshot, err := s.o.Read(ctx)
	s.note(0, "the agent is busy; metrics show its previous numbers", err)
	if err != nil {
		snapshot.Graph, snapshot.Dataplane = s.last.Graph, s.last.Dataplane
	} else {
		s.at = now
		s.staged.add(snapshot.Staged)
	}
	s.last = snapshot
}

// count asks for what the kernel has counted.
func (s *scrape) count() (dataplane.KernelCounts, bool) {
	if s.o.Counters == nil {
		return dataplane.KernelCounts{}, false
	}
	ctx, cancel := context.WithTimeout(context.Background(), countWithin)
	defer cancel()
	counts, err := s.o.Counters.Read(ctx)
	s.note(1, "metrics from the kernel are incomplete", err)
	return counts, true
}

// note counts failures, and logs the first of those in a row.
func (s *scrape) note(of int, what string, err error) {
	if err == nil {
		s.logged[of] = false
		return
	}
	s.failed[of]++
	if !s.logged[of] {
		s.o.Log.Warn(what, "err", err)
		s.logged[of] = true
	}
}

// sink takes metrics.
type sink chan<- prometheus.Metric

func (out sink) put(d definition, value float64, labels ...string) {
	m, err := prometheus.NewConstMetric(d.desc, d.kind, value, labels...)
	if err != nil { // a label that is no UTF-8
		m = prometheus.NewInvalidMetric(d.desc, err)
	}
	out <- m
}

func (out sink) agent(s *Snapshot) {
	out.put(inSync, one(s.InSync))
	out.put(ready, one(s.Ready))
	for _, c := range s.Components {
		out.put(componentLive, one(c.Live), c.Name)
		out.put(componentReady, one(c.Ready), c.Name)
	}
	if s.CNIFiles != nil {
		out.put(cniFiles, float64(s.CNIFiles.Written), "written")
		out.put(cniFiles, float64(s.CNIFiles.Failed), "failed")
	}
}

func (out sink) loop(s *Snapshot) {
	out.put(endpoints, float64(s.Dataplane.Enforced-s.Overtaken), "enforced")
	out.put(endpoints, float64(s.Overtaken), "overtaken")
	out.put(endpoints, float64(s.Dataplane.Waiting), "waiting")
	out.put(endpoints, float64(s.Dataplane.Failed), "failed")
	out.put(remoteEndpoints, float64(s.Graph.RemoteEndpoints))
	out.put(policies, float64(s.Graph.Policies))
	out.put(profiles, float64(s.Graph.Profiles))
	out.put(services, float64(s.Graph.Services))
	out.put(sets, float64(s.Graph.Sets))
	out.put(setMembers, float64(s.Graph.Members))
	out.put(kernelSets, float64(s.Dataplane.Sets))
	out.put(rules, float64(s.Dataplane.Rules))
	out.put(classes, float64(s.Dataplane.Classes))
	out.put(tables, float64(s.Dataplane.Tables))
	out.put(tableBytes, float64(s.Dataplane.LiveBytes), "live")
	out.put(tableBytes, float64(s.Dataplane.IdleBytes), "idle")
	out.put(unwritten, float64(s.Dataplane.Unwritten))
	out.put(repairs, float64(s.Dataplane.Repairs))
	out.maps(s.Dataplane.Maps)
}

func (out sink) maps(list []dataplane.MapUse) {
	for _, m := range list {
		out.put(mapEntries, float64(m.Entries), m.Name)
		out.put(mapMaxEntries, float64(m.Max), m.Name)
	}
}

// kinds reports every kind in every state, so that none vanishes from a graph when it changes its state.
func (out sink) kinds(list []syncer.KindStatus, now time.Time) {
	for _, k := range list {
		for _, state := range []syncer.KindState{syncer.KindListing, syncer.KindSynced, syncer.KindAbsent, syncer.KindFailing} {
			out.put(kindState, one(k.State == state), k.Kind, state.String())
		}
		out.put(kindSeconds, max(0, now.Sub(k.Since).Seconds()), k.Kind)
		out.put(kindRequired, one(k.Required), k.Kind)
		out.put(kindObjects, float64(k.Objects), k.Kind)
		out.put(kindLists, float64(k.Lists), k.Kind)
		out.put(kindFailures, float64(k.Failures), k.Kind)
		out.put(kindEvents, float64(k.Events), k.Kind)
		if k.Revision > 0 {
			out.put(kindRevision, float64(k.Revision), k.Kind)
		}
	}
}

// problems counts objects, each by its worst problem.
func (out sink) problems(list iter.Seq[validate.Problem]) {
	worst := map[validate.Ref]validate.Severity{}
	for p := range list {
		ref := p.Ref
		ref.Line = 0 // that of the field
		worst[ref] = max(worst[ref], p.Severity)
	}
	type of struct {
		kind     string
		severity validate.Severity
	}
	counts := map[of]int{}
	for ref, severity := range worst {
		counts[of{kinds.Label(ref.Kind), severity}]++
	}
	for key, n := range counts {
		out.put(problemObjects, float64(n), key.kind, strings.ReplaceAll(key.severity.String(), " ", "_"))
	}
}

func (out sink) kernel(k *dataplane.KernelCounts) {
	for _, d := range k.Drops {
		out.put(droppedPackets, float64(d.Packets), d.Reason, d.Direction.String())
		out.put(droppedBytes, float64(d.Bytes), d.Reason, d.Direction.String())
	}
	out.put(eventsWritten, float64(k.Events.Written))
	out.put(eventsRead, float64(k.Events.Read))
	out.put(eventsSuppressed, float64(k.Events.Suppressed))
	out.put(flowsExpired, float64(k.Expired[0]), "open")
	out.put(flowsExpired, float64(k.Expired[1]), "half")
	out.put(flowsRefused, float64(k.FlowsRefused))
	out.maps(k.Maps)
}

// endpointDrops are in the order of interfaces, so that the same endpoints are left out each time.
func (out sink) endpointDrops(k *dataplane.KernelCounts, s *dataplane.Stats) {
	seen := 0
	last := uint32(0)
	for _, d := range k.ByInterface {
		id, ok := s.Interfaces[d.Ifindex]
		if !ok {
			continue // no endpoint, or not one any more
		}
		if d.Ifindex != last {
			if seen++; seen > mostEndpoints {
				return
			}
			last = d.Ifindex
		}
		out.put(endpointDropped, float64(d.Packets), id.Namespace, id.Name, d.Direction.String())
	}
}

func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
