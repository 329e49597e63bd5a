package agent

import (
	"context"

	"github.com/margay-project/margay/pkg/metrics"
)

// Snapshot is the present state, for metrics. The endpoints are by interface too if asked.
func (a *API) Snapshot(ctx context.Context, interfaces bool) (metrics.Snapshot, error) {
	status := a.Loop.Status()
	s := metrics.Snapshot{InSync: status.InSync, Ready: status.Ready, Kinds: a.Reports.Kinds(), Components: a.Health.Components()}
	staged := false
	err := a.Loop.Query(ctx, func(v View) {
		n := v.Graph.Sizes()
		s.Graph = metrics.Graph{RemoteEndpoints: n.RemoteEndpoints, Policies: n.Policies, Profiles: n.Profiles,
			Services: n.Services, Sets: n.Sets, Members: n.Members}
		s.Dataplane = v.dataplane.Stats(interfaces)
		s.Problems = append(a.Reports.Problems(), configProblems(v.Settings)...)
		s.Problems = append(s.Problems, v.node...)
		staged = len(a.Plane.Staged(nil)) > 0
	})
	if err == nil && staged {
		s.Staged, err = a.stagedCounts(ctx)
	}
	return s, err
}

// stagedCounts are those of the rules of staged policies. The loop does not wait until the kernel's counters have been read.
func (a *API) stagedCounts(ctx context.Context) ([]metrics.StagedCount, error) {
	counts, err := a.Plane.RuleCounts()
	if err != nil {
		return nil, err
	}
	var list []metrics.StagedCount
	err = a.Loop.Query(ctx, func(View) {
		for _, c := range a.Plane.Staged(counts) {
			list = append(list, metrics.StagedCount{Rule: c.Rule, Allow: c.Allow, Flows: c.Packets})
		}
	})
	return list, err
}
