package agent

import (
	"context"
	"iter"
	"slices"

	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/metrics"
	"github.com/margay-project/margay/pkg/validate"
)

// Snapshot is the present state, for metrics. The endpoints are by interface too if asked.
func (a *API) Snapshot(ctx context.Context, interfaces bool) (metrics.Snapshot, error) {
	status := a.Loop.Status()
	s := metrics.Snapshot{InSync: status.InSync, Ready: status.Ready, Kinds: a.Reports.Kinds(), Components: a.Health.Components()}
	var problems []validate.Problem
	staged := false
	err := a.Loop.Query(ctx, func(v View) {
		n := v.Graph.Sizes()
		s.Graph = metrics.Graph{RemoteEndpoints: n.RemoteEndpoints, Policies: n.Policies, Profiles: n.Profiles,
			Services: n.Services, Sets: n.Sets, Members: n.Members}
		s.Dataplane = v.dataplane.Stats(interfaces)
		if a.Overtaken != nil {
			s.Overtaken = min(overtakenOf(v.states, a.Overtaken()), s.Dataplane.Enforced)
		}
		problems = append(configProblems(v.Settings), v.node...)
		staged = len(a.Plane.Staged(nil)) > 0
	})
	s.Problems = joint(slices.Values(problems), a.Reports.All())
	if err == nil && staged {
		s.Staged, err = a.stagedCounts(ctx)
	}
	return s, err
}

// overtakenOf counts the enforced endpoints on some interfaces.
func overtakenOf(states []dataplane.EndpointStatus, interfaces map[uint32]bool) int {
	return countOf(states, func(e dataplane.EndpointStatus) bool {
		return e.Condition == dataplane.Enforced && interfaces[e.Ifindex]
	})
}

// joint yields what one list does, and then what another does.
func joint[T any](a, b iter.Seq[T]) iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, list := range []iter.Seq[T]{a, b} {
			for v := range list {
				if !yield(v) {
					return
				}
			}
		}
	}
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
