package agent_test

import (
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// BenchmarkVerify verifies 100 endpoints whose ingress has 1,000 rules each: the same ones, or others for each endpoint. It
// reports what a verification takes, its CPU, and how long it kept the loop waiting at most.
func BenchmarkVerify(b *testing.B) {
	for name, policies := range map[string]int{"one-policy": 1, "100-policies": 100} {
		b.Run(name, func(b *testing.B) {
			benchmarkVerify(b, runVerified(b, func(*dataplane.Config) {}), policies)
		})
	}
}

// BenchmarkVerifyRules is the same where iptables enforces. It runs in the network namespace of the process: unshare -n.
func BenchmarkVerifyRules(b *testing.B) {
	if os.Getenv("MARGAY_VERIFY_RULES") == "" {
		b.Skip("MARGAY_VERIFY_RULES=1 unshare -n go test ... writes rules into this process's network namespace")
	}
	for _, backend := range backends {
		for name, policies := range map[string]int{"one-policy": 1, "100-policies": 100} {
			b.Run(string(backend)+"/"+name, func(b *testing.B) { benchmarkVerify(b, runRealChained(b, backend).verified, policies) })
		}
	}
}

func benchmarkVerify(b *testing.B, v *verified, policies int) {
	b.Helper()
	v.replace(b, large(100, 1000, policies))
	cpu, loop, packets := 0.0, 0.0, 0
	for b.Loop() {
		r := v.verify(b)
		if !r.Proven {
			b.Fatalf("%s", textOf(r))
		}
		cpu, loop, packets = cpu+r.Took.CPUSeconds, max(loop, r.Took.LoopSeconds), packets+r.Questions
	}
	b.ReportMetric(cpu/float64(b.N), "cpu-s/op")
	b.ReportMetric(float64(packets/b.N), "packets/op")
	b.ReportMetric(loop*1e3, "loop-ms")
}

// large are endpoints with policies of so many rules, each for another port, and from one of 50 groups of pods.
func large(endpoints, rules, policies int) []model.Update {
	var all []model.Update
	tcp := model.ProtoTCP
	for i := range endpoints {
		all = append(all, model.EndpointUpdate{ID: model.WorkloadID(fmt.Sprintf("ns%d", i%10), fmt.Sprintf("pod%d", i)), Endpoint: &model.Endpoint{
			Node: "n", Iface: fmt.Sprintf("cali%d", i), Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)})},
			Labels: map[string]string{"policy": fmt.Sprint(i % policies)}}})
	}
	for i := range 2000 {
		all = append(all, model.EndpointUpdate{ID: model.WorkloadID("far", fmt.Sprintf("pod%d", i)), Endpoint: &model.Endpoint{
			Node: "far", Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 1, byte(i / 250), byte(i % 250)})}, Labels: map[string]string{"group": fmt.Sprint(i % 50)}}})
	}
	for p := range policies {
		policy := &model.Policy{Tier: model.TierDefault, Order: 1, Selector: selector.Equal("policy", fmt.Sprint(p)), AppliesIngress: true}
		for r := range rules {
			port := uint16(1000 + r*7 + p)
			policy.Ingress = append(policy.Ingress, model.Rule{Action: model.Allow, Index: r, Protocol: &tcp,
				Source:      model.Entity{Selector: selector.Equal("group", fmt.Sprint((r+p)%50))},
				Destination: model.Entity{Ports: []model.PortRange{{Lo: port, Hi: port}}}})
		}
		all = append(all, model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: fmt.Sprintf("p%d", p)}, Policy: policy})
	}
	return all
}
