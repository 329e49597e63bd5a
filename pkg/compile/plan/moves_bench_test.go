package plan_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
	"github.com/margay-project/margay/pkg/syncer"
)

// digits are rules of which no port below base^3 matches the same ones as another. Nothing is in their sets.
func digits(base int) (rules []model.Rule) {
	for weight := 1; weight < base*base*base; weight *= base {
		for value := range base {
			r := model.Rule{Action: model.Allow, Protocol: &tcpNumber, Source: model.Entity{Selector: selector.Equal("nothing", "has-it")}}
			for low := weight * value; low < min(base*base*base, 1<<16); low += weight * base {
				if high := min(low+weight-1, 1<<16-1); high > 0 {
					r.Destination.Ports = append(r.Destination.Ports, model.PortRange{Lo: uint16(max(low, 1)), Hi: uint16(high)})
				}
			}
			rules = append(rules, r)
		}
	}
	return rules
}

var tcpNumber = model.ProtoTCP

// evilPod is a pod of a tenant on this node, and the policy of its ingress.
func evilPod(i int, rules ...model.Rule) []model.Update {
	name := fmt.Sprint("evil-", i)
	return []model.Update{
		model.EndpointUpdate{ID: model.WorkloadID("evil", name), Endpoint: &model.Endpoint{Node: "n", Iface: "cali-" + name, Profiles: []string{"kns.evil"},
			Labels: map[string]string{"name": name}, Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 99, 0, byte(i)})}}},
		model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: "evil", Name: name}, Policy: &model.Policy{
			Tier: model.TierDefault, Selector: selector.Equal("name", name), AppliesIngress: true, Ingress: rules}},
	}
}

func allowTo(of *selector.Selector, last int) model.Rule {
	r := model.Rule{Action: model.Allow, Protocol: &tcpNumber, Source: model.Entity{Selector: of}}
	r.Destination.Ports = []model.PortRange{{Lo: 1, Hi: uint16(last)}}
	return r
}

// evilSet is a network set of one address.
func evilSet(i int, labels map[string]string) model.Update {
	return model.NetworkSetUpdate{ID: model.NetworkSetID{Namespace: "evil", Name: fmt.Sprint("s", i)}, Set: &model.NetworkSet{Labels: labels,
		Nets: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 20, byte(i >> 8), byte(i)}), 32)}}}
}

// longest applies updates and reports the longest CPU time that graph and compiler take without a pause.
func (n *node) longest(b *testing.B, updates []model.Update) (longest float64) {
	n.graph.Apply(updates)
	for more := true; more; {
		began := testutil.CPUTime(b)
		p := n.compiler.Update(n.graph.Flush())
		longest = max(longest, (testutil.CPUTime(b)-began).Seconds()*1e3)
		more = p.More || p.FollowUp || len(n.graph.Turning()) > 0
	}
	return longest
}

// BenchmarkNetworkSetsChangeTheirLabels has 512 network sets of a tenant, as many as an agent changes at once, allowed other ports by a policy
// with a wide table: more ones in one turn, and fewer in the next.
func BenchmarkNetworkSetsChangeTheirLabels(b *testing.B) {
	const groups, sets = 20, syncer.MostAddresses
	n := newNode()
	n.graph.InParts(syncer.MostAddresses)
	var wide, apart []model.Rule
	for i := range groups {
		wide = append(wide, allowTo(selector.Equal("group", fmt.Sprint(i)), 50_000+i))
	}
	for i := range sets {
		apart = append(apart, allowTo(selector.Equal("tag", fmt.Sprint(i)), 80))
	}
	updates := append(evilPod(1, append(wide, digits(40)...)...), evilPod(2, apart...)...)
	labels := func(turn int) (list []model.Update) {
		for i := range sets {
			list = append(list, evilSet(i, map[string]string{"tag": fmt.Sprint(i), "group": fmt.Sprint(i%(groups-1) + turn%2)}))
		}
		return list
	}
	b.Log("begin:", n.longest(b, append(updates, labels(0)...)))
	for _, t := range n.compiler.Tables() {
		if len(t.Program.Rules) > 1000 {
			b.Logf("%d entries, slot %+v, %d bytes", len(t.Program.Rules), t.Slot, t.Bytes())
		}
	}
	longest := 0.0
	for i := 1; b.Loop(); i++ {
		longest = max(longest, n.longest(b, labels(i)))
	}
	b.ReportMetric(longest, "longest-ms")
}

// BenchmarkANetworkSetIsInACombinationThatIsNew has a tenant's network set change its labels, so that no table of its pods has a row for them.
func BenchmarkANetworkSetIsInACombinationThatIsNew(b *testing.B) {
	const pods, sets, bits = 16, 40, 10
	n := newNode()
	n.graph.InParts(syncer.MostAddresses)
	var updates []model.Update
	for p := range pods {
		var rules []model.Rule
		for bit := range bits {
			rules = append(rules, allowTo(selector.Equal(fmt.Sprint("b", bit), "1"), 30_000+p))
		}
		updates = append(updates, evilPod(p+1, append(rules, digits(32)...)...)...)
	}
	labels := func(set, number int) model.Update {
		of := map[string]string{}
		for bit := range bits {
			of[fmt.Sprint("b", bit)] = fmt.Sprint(number >> bit & 1)
		}
		return evilSet(set, of)
	}
	for i := range sets {
		updates = append(updates, labels(i, i+1))
	}
	b.Log("begin:", n.longest(b, updates))
	for _, t := range n.compiler.Tables() {
		if len(t.Program.Rules) > 1000 {
			b.Logf("%d entries, slot %+v, %d bytes", len(t.Program.Rules), t.Slot, t.Bytes())
			break
		}
	}
	longest := 0.0
	for i := 0; b.Loop(); i++ {
		longest = max(longest, n.longest(b, []model.Update{labels(0, sets+1+i%(1<<bits-sets-1))}))
	}
	b.ReportMetric(longest, "longest-ms")
}

// BenchmarkPodsChangeTheirLabelsAtOnce has pods of a tenant, on another node, or network sets change the label by which as many selectors find
// them as one namespace may have.
func BenchmarkPodsChangeTheirLabelsAtOnce(b *testing.B) {
	const selectors, policies = 8192, 8
	for _, c := range []struct {
		kind string
		n    int
	}{{"pods", 1}, {"pods", 8}, {"pods", 64}, {"network sets", 128}} {
		b.Run(fmt.Sprint(c.n, " ", c.kind), func(b *testing.B) {
			n := newNode()
			n.graph.InParts(syncer.MostAddresses)
			updates := evilPod(1)
			for p := range policies {
				var rules []model.Rule
				for i := p; i < selectors; i += policies {
					rules = append(rules, model.Rule{Action: model.Allow, Source: model.Entity{
						Selector: selector.And(selector.Equal("role", "yes"), selector.NotEqual("app", fmt.Sprint(i)))}})
				}
				updates = append(updates, model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: "evil", Name: fmt.Sprint("p", p)}, Policy: &model.Policy{
					Tier: model.TierDefault, Selector: selector.Equal("name", "evil-1"), AppliesIngress: true, Ingress: rules}})
			}
			roles := func(role string) (list []model.Update) {
				for i := range c.n {
					if c.kind == "network sets" {
						list = append(list, evilSet(i, map[string]string{"role": role, "pod": fmt.Sprint(i)}))
						continue
					}
					list = append(list, model.EndpointUpdate{ID: model.WorkloadID("evil", fmt.Sprint("far-", i)), Endpoint: &model.Endpoint{Node: "other", Profiles: []string{"kns.evil"},
						Labels: map[string]string{"role": role, "pod": fmt.Sprint(i)}, Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 98, byte(i >> 8), byte(i)})}}})
				}
				return list
			}
			b.Log("begin:", n.longest(b, append(updates, roles("no")...)))
			longest := 0.0
			for i := 0; b.Loop(); i++ {
				longest = max(longest, n.longest(b, roles([]string{"yes", "no"}[i%2])))
			}
			b.ReportMetric(longest, "longest-ms")
		})
	}
}
