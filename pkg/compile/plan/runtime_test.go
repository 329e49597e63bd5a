package plan_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/compile/plan"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// work is what a change had worked out again, in the graph and in the compiler, and what it had written.
type work struct {
	Rules, Groups int // see calc.Work
	Endpoints     int // whose policy is another
	Policies      int // see plan.Work
	Tables        int // made
	Bound         int // endpoints that got another table, for a policy or for more rows
	Addrs         int // that changed their class
}

// node is the graph and the compiler of a node.
type node struct {
	graph    *calc.Graph
	compiler *plan.Compiler
}

func (n *node) apply(updates ...model.Update) (w work) {
	n.graph.Apply(updates)
	ch := n.graph.Flush()
	w.Rules, w.Groups, w.Endpoints = n.graph.Work().Rules, n.graph.Work().Groups, len(ch.Endpoints)
	for more := true; more; ch = (model.Changes{InSync: true}) {
		p := n.compiler.Update(ch)
		w.Policies += n.compiler.Sizes().Work.Policies
		w.Tables += len(p.Tables)
		w.Bound += len(p.Bind) + len(p.Grow)
		w.Addrs += len(p.Addrs)
		more = p.More || p.FollowUp
	}
	return w
}

func app(i int) *selector.Selector { return selector.Equal("app", fmt.Sprintf("app-%d", i)) }

// runtimePod is the n-th pod of an app. The first two of each are on the node.
func runtimePod(i, n int) model.EndpointUpdate {
	ep := &model.Endpoint{Node: "other", Profiles: []string{"kns.shop"}, Labels: map[string]string{"app": fmt.Sprintf("app-%d", i)},
		Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, byte(i), byte(n >> 8), byte(n)})}}
	if n < 2 {
		ep.Node, ep.Iface = "n", fmt.Sprintf("cali%d-%d", i, n)
	}
	return model.EndpointUpdate{ID: model.WorkloadID("shop", fmt.Sprintf("app-%d-%d", i, n)), Endpoint: ep}
}

// ingress is a policy of an app, which lets another one in to a port of the policy's own.
func ingress(name, tier string, of *selector.Selector, from *selector.Selector, port uint16) model.PolicyUpdate {
	tcp := model.ProtoTCP
	r := model.Rule{Action: model.Allow, Protocol: &tcp, Source: model.Entity{Selector: from}}
	r.Destination.Ports = []model.PortRange{{Lo: port, Hi: port}}
	return model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: name}, Policy: &model.Policy{
		Tier: tier, Order: 10, Selector: of, AppliesIngress: true, Ingress: []model.Rule{r},
	}}
}

func tier(name string, order float64, end model.Action) model.TierUpdate {
	return model.TierUpdate{Name: name, Tier: &model.Tier{Order: order, Default: end}}
}

const networks = 100_000 // of the network set

// networkSet has many networks, of which the last one depends on i.
func networkSet(nets []netip.Prefix, i int) model.NetworkSetUpdate {
	list := slices.Clone(nets)
	list[len(list)-1] = netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 16, byte(i >> 8), byte(i)}), 32)
	return model.NetworkSetUpdate{ID: model.NetworkSetID{Name: "large"}, Set: &model.NetworkSet{Nets: list, Labels: map[string]string{"set": "large"}}}
}

func manyNetworks() (nets []netip.Prefix) {
	for i := range networks {
		nets = append(nets, netip.PrefixFrom(netip.AddrFrom4([4]byte{100, byte(64 + i>>16), byte(i >> 8), byte(i)}), 32))
	}
	return nets
}

// newNode has six apps of two pods here and 200 elsewhere, each with a policy of its own in tier default, the first with one
// in each of two tiers before it, the second in one of them, and the last with one in a tier that does not exist.
func newNode() *node {
	n := &node{calc.New("n"), plan.New(plan.Options{}, nil)}
	open := []model.Rule{{Action: model.Allow}}
	updates := []model.Update{
		model.ProfileUpdate{Name: "kns.shop", Profile: &model.Profile{Ingress: open, Egress: open}},
		tier("first", 10, model.Deny), tier("second", 20, model.Pass),
		ingress("first-0", "first", app(0), app(1), 1000),
		ingress("second-0", "second", app(0), app(2), 1001),
		ingress("second-1", "second", app(1), app(3), 1002),
		ingress("missing-5", "missing", app(5), app(4), 1003),
		ingress("networks-4", "first", app(4), selector.Equal("set", "large"), 1004),
		networkSet(manyNetworks(), 0),
	}
	for i := range 6 {
		updates = append(updates, ingress(fmt.Sprintf("own-%d", i), model.TierDefault, app(i), app((i+1)%6), uint16(80+i)))
		for p := range 202 {
			updates = append(updates, runtimePod(i, p))
		}
	}
	n.apply(append(updates, model.InSync{})...)
	return n
}

// A change at runtime has worked out again what depends on it and no more.
func TestAChangeRecompilesWhatDependsOnIt(t *testing.T) {
	for _, tt := range []struct {
		what    string
		updates []model.Update
		want    work
	}{
		{"nothing", nil, work{}},
		{"a tier comes that no policy is in", []model.Update{tier("new", 5, model.Deny)}, work{}},
		{"a tier comes that a policy is in", []model.Update{tier("missing", 5, model.Deny)},
			work{Groups: 1, Endpoints: 2, Policies: 1, Tables: 1, Bound: 2}},
		{"a tier goes", []model.Update{model.TierUpdate{Name: "second"}},
			work{Groups: 2, Endpoints: 4, Policies: 2, Tables: 2, Bound: 4}},
		{"a tier comes after another that it was before", []model.Update{tier("first", 30, model.Deny)},
			work{Groups: 2, Endpoints: 2, Policies: 1, Tables: 1, Bound: 2}},
		{"a tier's order changes and no order of tiers", []model.Update{tier("first", 11, model.Deny)}, work{Groups: 2}},
		{"a tier's default action changes", []model.Update{tier("second", 20, model.Deny)},
			work{Groups: 2, Endpoints: 4, Policies: 2, Tables: 2, Bound: 4}},
		{"a policy moves to another tier", []model.Update{ingress("second-1", "first", app(1), app(3), 1002)},
			work{Rules: 1, Groups: 1, Endpoints: 2, Policies: 1, Tables: 1, Bound: 2}},
		{"a policy begins to apply to every pod", []model.Update{ingress("own-5", model.TierDefault, selector.All(), app(0), 85)},
			work{Rules: 1, Groups: 6, Endpoints: 10, Policies: 5, Tables: 5, Bound: 10}},
		{"a rule begins to match every pod", []model.Update{ingress("own-3", model.TierDefault, app(3), selector.Has("app"), 83)},
			work{Rules: 1, Groups: 1, Endpoints: 2, Policies: 1, Tables: 1, Bound: 2, Addrs: 6 * 202}},
		{"one of very many networks of a set changes", []model.Update{networkSet(manyNetworks(), 1)}, work{Addrs: 2}},
		{"a remote pod changes its app", []model.Update{func() model.Update {
			u := runtimePod(0, 100)
			u.Endpoint.Labels = map[string]string{"app": "app-1"}
			return u
		}()}, work{Addrs: 1}},
	} {
		t.Run(tt.what, func(t *testing.T) {
			if got := newNode().apply(tt.updates...); got != tt.want {
				t.Errorf("worked out again: %+v\nwant                %+v", got, tt.want)
			}
		})
	}
}

// BenchmarkLargeNetworkSet changes one of 100,000 networks of a set that a rule of this node refers to.
func BenchmarkLargeNetworkSet(b *testing.B) {
	n, nets := newNode(), manyNetworks()
	updates := []model.Update{networkSet(nets, 1), networkSet(nets, 2)}
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; b.Loop(); i++ {
		n.apply(updates[i%2])
	}
}
