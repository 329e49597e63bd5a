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
	plans    *int // written; nil: they are not counted
}

func (w writer) CarryOn() error {
	if w.plans != nil && !w.Done() {
		*w.plans++
	}
	w.Step = w.steps.All
	return nil
}

func (w writer) Busy() map[uint32]bool   { return nil }
func (w writer) Fault(error) bool        { return true }
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
	p := NewPlanner(plan.New(plan.Options{}, nil), Steps{All: 1})
	defer p.Compiler.Close()
	pace, w := NewPace(time.Now), writer{p, overhead, nil}
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

// changing is a node with a large policy to be compiled, and an endpoint whose small policy changes.
type changing struct {
	*Planner
	pace    *Pace
	now     time.Time
	plans   int // written so far
	changes int
}

func newChanging(t *testing.T) *changing {
	c := &changing{Planner: NewPlanner(plan.New(plan.Options{}, nil), Steps{All: 1}), pace: NewPace(time.Now)}
	t.Cleanup(c.Compiler.Close)
	c.pace.now = func() time.Time { return c.now }
	c.Enqueue(model.Changes{InSync: true, Sets: map[model.SetID]*model.SetChange{model.SetNodeAddrs: {}}})
	c.pass(t)
	large := largeEndpoint(0, 6000)
	c.Enqueue(model.Changes{InSync: true, Endpoints: map[model.EndpointID]*model.EndpointPolicy{large.ID: large}})
	c.pass(t)
	return c
}

// change has another small policy wait.
func (c *changing) change() {
	c.changes++
	small := largeEndpoint(1, 1+c.changes%2)
	c.Enqueue(model.Changes{InSync: true, Endpoints: map[model.EndpointID]*model.EndpointPolicy{small.ID: small}})
}

// pass returns how many plans a CarryOut makes, an hour after the one before, so that large policies rest no more.
func (c *changing) pass(t *testing.T) (made int) {
	t.Helper()
	c.now = c.now.Add(time.Hour)
	before := c.plans
	if err := CarryOut(c.Planner, c.pace, writer{c.Planner, 0, &c.plans}, unobserved{}); err != nil {
		t.Fatal(err)
	}
	return c.plans - before
}

// A change that comes in while another one is enforced waits for the plan of that one only, not for a part of a large policy.
func TestAPassEndsAfterAChange(t *testing.T) {
	c := newChanging(t)
	c.pass(t) // a part
	for range 3 {
		c.change()
		if made := c.pass(t); made != 1 || !c.Plan.More {
			t.Fatalf("%d plans with a change, more to do: %v; want the plan of the change alone", made, c.Plan.More)
		}
		if made := c.pass(t); made != 1 {
			t.Fatalf("%d plans in the next pass, want that of a part", made)
		}
	}
}

// Changes that come in all the time, each before the pass of the one before it has ended, do not keep a large policy waiting.
func TestChangesAllTheTimeKeepNoLargePolicyWaiting(t *testing.T) {
	c := newChanging(t)
	for range 500 {
		c.change()
		c.pass(t)
		if len(c.Compiler.Waiting()) == 0 {
			return
		}
	}
	t.Error("the large policy is not compiled after 500 changes")
}
