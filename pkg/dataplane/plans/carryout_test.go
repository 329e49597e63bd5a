package plans

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/margay-project/margay/pkg/compile/plan"
	"github.com/margay-project/margay/pkg/model"
)

// writer writes nothing, and says that each plan has so much overhead.
type writer struct {
	*Planner
	overhead time.Duration
}

func (w writer) CarryOn() error          { w.Step = w.steps; return nil }
func (w writer) Busy() map[uint32]bool   { return nil }
func (w writer) Overhead() time.Duration { return w.overhead }

type unobserved struct{}

func (unobserved) Compiled(time.Duration)  {}
func (unobserved) Published(time.Duration) {}

// largeEndpoint has a policy of so many rules, each about an address that nobody else's policy is about.
func largeEndpoint(i, rules int) *model.EndpointPolicy {
	id := model.WorkloadID(fmt.Sprintf("ns-%d", i), "pod")
	p := &model.PolicyRules{Key: model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: id.Namespace, Name: "large"}}
	for r := range rules {
		a := netip.AddrFrom4([4]byte{172, byte(16 + i), byte(r >> 8), byte(r)})
		p.Rules = append(p.Rules, model.MatchRule{Action: model.Allow, Index: r, Source: model.Side{Nets: []netip.Prefix{netip.PrefixFrom(a, 32)}}})
	}
	return &model.EndpointPolicy{ID: id, Iface: fmt.Sprintf("cali%d", i), Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(1 + i)})},
		Ingress: &model.DirectionPolicy{Direction: model.Ingress, Tiers: []model.TierPolicy{{Name: "default", Default: model.Deny, Policies: []*model.PolicyRules{p}}}},
		Egress:  &model.DirectionPolicy{Direction: model.Egress}}
}

// plansFor are how many plans it takes until six large policies are compiled that come to a node.
func plansFor(t *testing.T, overhead time.Duration) (n int) {
	t.Helper()
	p := NewPlanner(plan.New(plan.Options{}, nil), 1)
	defer p.Compiler.Close()
	pace, w := NewPace(), writer{p, overhead}
	carryOut := func() {
		t.Helper()
		if err := CarryOut(p, pace, w, unobserved{}); err != nil {
			t.Fatal(err)
		}
	}
	p.Enqueue(model.Changes{InSync: true, Sets: map[model.SetID]*model.SetChange{model.SetNodeAddrs: {}}})
	carryOut()
	all := map[model.EndpointID]*model.EndpointPolicy{}
	for i := range 6 {
		e := largeEndpoint(i, 600)
		all[e.ID] = e
	}
	p.Enqueue(model.Changes{InSync: true, Endpoints: all})
	for p.Pending() || p.Plan.More {
		carryOut()
		n++
	}
	if waiting := p.Compiler.Waiting(); len(waiting) > 0 || len(p.Compiler.Tables()) < 6 {
		t.Errorf("%d endpoints wait for their policy, and there are %d tables", len(waiting), len(p.Compiler.Tables()))
	}
	return n
}

// Where each plan costs much, the same policies are enforced with far fewer plans.
func TestLargePoliciesShareAnOverhead(t *testing.T) {
	without, with := plansFor(t, 0), plansFor(t, time.Hour)
	t.Logf("%d plans, %d with much overhead", without, with)
	if without < 50 || with > 10 {
		t.Errorf("%d plans, and %d with much overhead; want at least 50, and at most 10", without, with)
	}
}
