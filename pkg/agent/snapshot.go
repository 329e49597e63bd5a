package agent

import (
	"context"

	"github.com/margay-project/margay/pkg/metrics"
)

// Snapshot is how it stands now, for metrics. The endpoints are by interface too if asked.
func (l *Loop) Snapshot(ctx context.Context, interfaces bool) (metrics.Snapshot, error) {
	status := l.Status()
	s := metrics.Snapshot{InSync: status.InSync, Ready: status.Ready, Kinds: l.o.Source.Kinds(),
		Problems: l.o.Source.Problems(), Components: l.o.Health.Components()}
	err := l.Query(ctx, func(v View) {
		n := v.Graph.Sizes()
		s.Graph = metrics.Graph{RemoteEndpoints: n.RemoteEndpoints, Policies: n.Policies, Profiles: n.Profiles,
			Services: n.Services, Sets: n.Sets, Members: n.Members}
		s.Dataplane = l.o.Dataplane.Stats(interfaces)
		s.Problems = append(s.Problems, configProblems(l.o.Settings)...)
		s.Problems = append(s.Problems, l.nodeProblems()...)
	})
	return s, err
}
