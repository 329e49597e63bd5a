package bpf

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// BenchmarkALargePolicyChanges measures what a tenant costs that changes a policy of 8,000 rules all the time, beside 100 pods with policies
// of their own. An op is one change with all its parts, each of them followed by the question for the endpoints that the loop asks. It tells
// how much a change allocates, and in how many parts: garbage is collected the more often, and others' changes wait for that.
func BenchmarkALargePolicyChanges(b *testing.B) {
	testutil.Privileged(b)
	c, host, graph := dataplane.Defaults(), NewFakeHost(), calc.New("n")
	c.BPFFS, c.EventRate = testutil.BPFFS(b), 0
	updates := []model.Update{model.InSync{}}
	add := func(name string, i int, rules []model.Rule) {
		iface, app := fmt.Sprintf("cali%d", i), selector.Equal("app", name)
		host.Ifaces[iface] = uint32(1000 + i)
		updates = append(updates, model.EndpointUpdate{ID: model.WorkloadID("t", name), Endpoint: &model.Endpoint{Node: "n", Iface: iface,
			Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})}, Labels: map[string]string{"app": name}}},
			model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: "t", Name: name},
				Policy: &model.Policy{Tier: model.TierDefault, Order: 1, Selector: app, AppliesIngress: true, Ingress: rules}})
	}
	for i := range 100 {
		add(fmt.Sprintf("p%d", i), i+2, []model.Rule{{Action: model.Allow}})
	}
	add("large", 1, largeRules(0))
	large := updates[len(updates)-1].(model.PolicyUpdate)
	dp, err := OpenBPF(c, host, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := dp.Close(); err != nil {
			b.Error(err)
		}
	}()
	var policies []*model.Policy // made before, since they are no work of the agent
	for turn := range 8 {
		policy := *large.Policy
		policy.Ingress = largeRules(turn)
		policies = append(policies, &policy)
	}
	parts, turn := 0, 0
	change := func() {
		for more := true; more; more = dp.Unfinished() {
			if err := dp.Apply(context.Background(), graph.Flush()); err != nil {
				b.Fatal(err)
			}
			if n := len(dp.Endpoints()); n != 101 {
				b.Fatalf("%d endpoints, want 101", n)
			}
			parts++
		}
	}
	graph.Apply(updates)
	change()
	b.ReportAllocs()
	for parts = 0; b.Loop(); {
		turn++
		graph.Apply([]model.Update{model.PolicyUpdate{Key: large.Key, Policy: policies[turn%len(policies)]}})
		change()
	}
	b.ReportMetric(float64(parts)/float64(b.N), "parts/op")
}

// largeRules are rules with a CIDR list and a port each, others in each turn.
func largeRules(turn int) (rules []model.Rule) {
	tcp := uint8(6)
	for i := range 8000 {
		port := uint16(1 + (i*7+turn)%65535)
		net := netip.PrefixFrom(netip.AddrFrom4([4]byte{172, byte(16 + i>>8), byte(i), 0}), 24+(i+turn)%8)
		rules = append(rules, model.Rule{Action: model.Allow, Index: i, Protocol: &tcp, Source: model.Entity{Nets: []netip.Prefix{net}},
			Destination: model.Entity{Ports: []model.PortRange{{Lo: port, Hi: port}}}})
	}
	return rules
}
