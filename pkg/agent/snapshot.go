package agent

import (
	"context"

	"github.com/margay-project/margay/pkg/metrics"
)

// Snapshot is the present state, for metrics. The endpoints are by interface too if asked.
func (a *API) Snapshot(ctx context.Context, interfaces bool) (metrics.Snapshot, error) {
	status := a.Loop.Status()
	s := metrics.Snapshot{InSync: status.InSync, Ready: status.Ready, Kinds: a.Reports.Kinds(), Components: a.Health.Components()}
	err := a.Loop.Query(ctx, func(v View) {
		n := v.Graph.Sizes()
		s.Graph = metrics.Graph{RemoteEndpoints: n.RemoteEndpoints, Policies: n.Policies, Profiles: n.Profiles,
			Services: n.Services, Sets: n.Sets, Members: n.Members}
		s.Dataplane = v.dataplane.Stats(interfaces)
		s.Problems = append(a.Reports.Problems(), configProblems(v.Settings)...)
		s.Problems = append(s.Problems, v.node...)
	})
	return s, err
}
