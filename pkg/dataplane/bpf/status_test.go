package bpf

import (
	"net/netip"
	"testing"

	"github.com/margay-project/margay/pkg/compile/plan"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/dataplane/plans"
	"github.com/margay-project/margay/pkg/model"
)

func TestEachEndpointIsCountedByItsCondition(t *testing.T) {
	tests := []struct {
		what   string
		change func(ep *endpoint, dirty map[model.EndpointID]bool, p *plans.Planner)
		want   dataplane.Condition
		count  dataplane.Stats
	}{
		{"all done", func(*endpoint, map[model.EndpointID]bool, *plans.Planner) {}, dataplane.Enforced, dataplane.Stats{Enforced: 1}},
		{"no interface", func(ep *endpoint, _ map[model.EndpointID]bool, _ *plans.Planner) { ep.ifindex, ep.ensured = 0, 0 },
			dataplane.NoInterface, dataplane.Stats{Waiting: 1}},
		{"without programs", func(ep *endpoint, _ map[model.EndpointID]bool, _ *plans.Planner) { ep.ensured = 0 },
			dataplane.Pending, dataplane.Stats{Waiting: 1}},
		{"to be programmed", func(ep *endpoint, dirty map[model.EndpointID]bool, _ *plans.Planner) { dirty[ep.policy.ID] = true },
			dataplane.Pending, dataplane.Stats{Waiting: 1}},
		{"within a plan", func(_ *endpoint, _ map[model.EndpointID]bool, p *plans.Planner) { p.Step = 0 },
			dataplane.Pending, dataplane.Stats{Waiting: 1}},
		{"refused", func(ep *endpoint, _ map[model.EndpointID]bool, _ *plans.Planner) { ep.failure = "no memory" },
			dataplane.Failed, dataplane.Stats{Failed: 1}},
		{"without an address", func(ep *endpoint, _ map[model.EndpointID]bool, _ *plans.Planner) { ep.policy.Addrs = nil },
			dataplane.NoAddress, dataplane.Stats{Enforced: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.what, func(t *testing.T) {
			known := &endpoints{kernel: &kernel{heirs: newHeirs(nil)}, staged: &stagedPolicies{}, sources: &sources{}, roster: newRoster(), dirty: map[model.EndpointID]bool{}}
			plans := plans.NewPlanner(plan.New(plan.Options{}, &plan.Snapshot{}), steps)
			policy := policyOf("web", "cali1")
			policy.Addrs = []netip.Addr{netip.MustParseAddr("10.0.0.1")}
			ep := known.roster.record(policy)
			ep.policy, ep.ifindex, ep.ensured = policy, 7, 7
			tt.change(ep, known.dirty, plans)
			s := status{plans, known, &refusals{}}
			all := s.all(nil)
			if len(all) != 1 || all[0].Condition != tt.want || all[0].ID != policy.ID || all[0].Ifindex != ep.ifindex {
				t.Errorf("got %+v, want condition %v", all, tt.want)
			}
			var count dataplane.Stats
			s.count(&count)
			if count.Enforced != tt.count.Enforced || count.Waiting != tt.count.Waiting || count.Failed != tt.count.Failed {
				t.Errorf("counted as %+v", count)
			}
		})
	}
}

func TestAnEndpointOfAnEarlierAgentHasNoStatusYet(t *testing.T) {
	known := &endpoints{kernel: &kernel{heirs: newHeirs(nil)}, staged: &stagedPolicies{}, roster: newRoster()}
	known.roster.adopt("cali1", &endpoint{ifindex: 7, ensured: 7})
	s := status{plans.NewPlanner(plan.New(plan.Options{}, &plan.Snapshot{}), steps), known, &refusals{}}
	var count dataplane.Stats
	if s.count(&count); len(s.all(nil)) != 0 || count.Enforced+count.Waiting+count.Failed != 0 {
		t.Errorf("%+v, counted as %+v", s.all(nil), count)
	}
}
