package calc

import (
	"fmt"
	"maps"
	"net/netip"
	"runtime"
	"testing"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// The cluster of the benchmarks: Deployments of 50 pods, 10 of them to a namespace, one pod in five with labels of its
// own as in a StatefulSet, and 5 policies to a namespace. 100 pods, spread over everything, are local.
const (
	benchLocal    = 100
	benchPolicies = 1000
)

func benchPod(i, total int) model.EndpointUpdate {
	ns, app := i/500, i/50%10
	ep := &model.Endpoint{
		Node:  fmt.Sprintf("remote-%d", i%1000),
		Iface: fmt.Sprintf("cali%011x", i),
		Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})},
		Labels: map[string]string{
			selector.NamespaceLabel:            fmt.Sprintf("ns-%d", ns),
			"projectcalico.org/orchestrator":   "k8s",
			"projectcalico.org/serviceaccount": "default",
			"app":                              fmt.Sprintf("app-%d", app),
			"pod-template-hash":                fmt.Sprintf("%x", i/50),
			"tier":                             []string{"front", "back"}[app%2],
		},
		Profiles: []string{fmt.Sprintf("kns.ns-%d", ns), fmt.Sprintf("ksa.ns-%d.default", ns)},
		Ports:    []model.NamedPort{{Name: "http", Protocol: model.ProtoTCP, Port: 8080}},
	}
	if i%(total/benchLocal) == 0 {
		ep.Node = thisNode
	}
	if i%5 == 0 {
		ep.Labels["statefulset.kubernetes.io/pod-name"] = fmt.Sprintf("pod-%d", i)
	}
	return model.EndpointUpdate{
		ID:       model.WorkloadID(fmt.Sprintf("ns-%d", ns), fmt.Sprintf("app-%d-%d", app, i)),
		Endpoint: ep,
	}
}

// benchPolicy is what a Kubernetes NetworkPolicy becomes: one app of a namespace, let in are another app, a whole
// namespace that has a label, and a port by number or, in every fifth policy, by name.
func benchPolicy(i, namespaces int) model.PolicyUpdate {
	ns := fmt.Sprintf("ns-%d", i%namespaces)
	inNamespace := selector.Equal(selector.NamespaceLabel, ns)
	rule := model.Rule{Action: model.Allow, Protocol: tcp()}
	rule.Source.Selector = selector.And(selector.Equal("app", fmt.Sprintf("app-%d", (i+1)%10)), inNamespace)
	rule.Destination.Ports = []model.PortRange{{Lo: 80, Hi: 80}}
	other := rule
	other.Source.Selector = selector.Equal("pcns.env", fmt.Sprintf("env-%d", i%50))
	if i%5 == 0 {
		other.Destination = model.Entity{NamedPorts: []string{"http"}, Selector: inNamespace}
	}
	return model.PolicyUpdate{
		Key: model.PolicyKey{Kind: model.KindKubernetesNetworkPolicy, Namespace: ns, Name: fmt.Sprintf("p-%d", i)},
		Policy: &model.Policy{
			Tier:  model.TierDefault,
			Order: model.OrderNetworkPolicy,
			Selector: selector.And(selector.Equal("app", fmt.Sprintf("app-%d", i/namespaces%10)),
				selector.Equal("projectcalico.org/orchestrator", "k8s"), inNamespace),
			AppliesIngress: true,
			Ingress:        []model.Rule{rule, other},
		},
	}
}

func benchCluster(pods int) []model.Update {
	var all []model.Update
	namespaces := max(1, pods/500)
	for i := range namespaces {
		ns := fmt.Sprintf("ns-%d", i)
		all = append(all, namespace(ns, "env", fmt.Sprintf("env-%d", i%50)),
			model.ProfileUpdate{Name: "ksa." + ns + ".default", Profile: &model.Profile{}})
	}
	for i := range pods {
		all = append(all, benchPod(i, pods))
	}
	for i := range benchPolicies {
		all = append(all, benchPolicy(i, namespaces))
	}
	return append(all, model.InSync{})
}

func BenchmarkFirstSync(b *testing.B) {
	for _, pods := range []int{10_000, 100_000} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			b.ReportAllocs()
			var heap uint64
			var c model.Changes
			for b.Loop() {
				b.StopTimer()
				before := liveHeap()
				updates := benchCluster(pods)
				b.StartTimer()
				g := New(thisNode)
				g.Apply(updates)
				c = g.Flush()
				b.StopTimer()
				updates = nil
				heap = liveHeap() - before
				runtime.KeepAlive(g)
				b.StartTimer()
			}
			b.ReportMetric(float64(heap)/float64(pods), "heap-B/pod")
			b.ReportMetric(float64(len(c.Sets)), "sets")
		})
	}
}

func liveHeap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func BenchmarkPodLabelChange(b *testing.B) {
	const pods = 100_000
	g := New(thisNode)
	g.Apply(benchCluster(pods))
	g.Flush()
	for _, c := range []struct {
		name string
		pod  int
	}{{"remote", 1001}, {"local", 1000}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			was := benchPod(c.pod, pods)
			now := was
			ep := *was.Endpoint
			ep.Labels = maps.Clone(ep.Labels)
			ep.Labels["app"], ep.Labels["pod-template-hash"] = "app-3", "changed"
			now.Endpoint = &ep
			batches := [2][]model.Update{{now}, {was}}
			i := 0
			for b.Loop() {
				g.Apply(batches[i%2])
				g.Flush()
				i++
			}
		})
	}
}

func BenchmarkPolicyChange(b *testing.B) {
	const pods = 100_000
	g := New(thisNode)
	g.Apply(benchCluster(pods))
	g.Flush()
	b.ReportAllocs()
	was := benchPolicy(0, pods/500)
	now := was
	p := *was.Policy
	p.Ingress = append([]model.Rule{fromSelector("app == 'app-7' && tier == 'back'")}, p.Ingress...)
	now.Policy = &p
	batches := [2][]model.Update{{now}, {was}}
	i := 0
	for b.Loop() {
		g.Apply(batches[i%2])
		g.Flush()
		i++
	}
}

// BenchmarkFurtherSources is a local pod that lists every address as a further source, and none, in turn.
func BenchmarkFurtherSources(b *testing.B) {
	const pods = 100_000
	g := New(thisNode)
	g.Apply(benchCluster(pods))
	g.Flush()
	b.ReportAllocs()
	was := benchPod(1000, pods)
	now := was
	ep := *was.Endpoint
	ep.Sources = nets("0.0.0.0/0")
	now.Endpoint = &ep
	batches := [2][]model.Update{{now}, {was}}
	i, members := 0, 0
	for b.Loop() {
		g.Apply(batches[i%2])
		c := g.Flush()
		if s := c.Sets[model.SetOwnedAddrs]; s != nil {
			members = max(members, len(s.Added))
		}
		i++
	}
	b.ReportMetric(float64(members), "owned")
}

// BenchmarkLargePolicyChange replaces a policy of 8,000 rules by another, each rule a CIDR list and a port of its own.
func BenchmarkLargePolicyChange(b *testing.B) {
	large := func(turn int) []model.Update {
		p := &model.Policy{Tier: "default", Selector: selector.All(), AppliesIngress: true}
		for i := range 8000 {
			port := uint16(1 + (i+turn)%65535)
			r := model.Rule{Action: model.Allow, Index: i, Protocol: tcp()}
			r.Source.Nets = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{172, byte(16 + i>>8), byte(i), 0}), 24)}
			r.Destination.Ports = []model.PortRange{{Lo: port, Hi: port}}
			p.Ingress = append(p.Ingress, r)
		}
		return []model.Update{model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: "ns-0", Name: "large"}, Policy: p}}
	}
	turns := [][]model.Update{large(0), large(1)}
	g := New(thisNode)
	g.Apply([]model.Update{benchPod(0, benchLocal), model.InSync{}})
	g.Flush()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		g.Apply(turns[i%2])
		if ch := g.Flush(); len(ch.Endpoints) != 1 {
			b.Fatalf("%d endpoints have other policies", len(ch.Endpoints))
		}
	}
}
