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

// BenchmarkServiceAccountChange gives a ServiceAccount other labels as which very many pods run, and by which selectors find as much as those of
// one namespace may find. The longest CPU time that graph and compiler take without a pause is a metric, since changes of others wait for it.
func BenchmarkServiceAccountChange(b *testing.B) {
	for _, c := range []struct {
		name           string
		policies, pods int
		differ         bool // no two pods have the same labels
		most           int  // InParts
	}{
		{"48 policies, 10,000 pods, at once", 48, 10_000, false, 0}, {"48 policies, 10,000 pods", 48, 10_000, false, syncer.MostAddresses},
		{"48 policies, 10,000 different pods, at once", 48, 10_000, true, 0}, {"48 policies, 10,000 different pods", 48, 10_000, true, syncer.MostAddresses},
		{"480 policies, 1,000 pods, at once", 480, 1000, false, 0}, {"480 policies, 1,000 pods", 480, 1000, false, syncer.MostAddresses},
		{"1 policy, 1,000 pods", 1, 1000, false, syncer.MostAddresses}, {"no policy, 10,000 pods", 0, 10_000, false, syncer.MostAddresses},
	} {
		b.Run(c.name, func(b *testing.B) {
			n := newNode()
			n.graph.InParts(c.most)
			account := func(value string) model.ProfileUpdate {
				return model.ProfileUpdate{Name: "ksa.evil.a", Profile: &model.Profile{Labels: map[string]string{"pcsa.role": value}}}
			}
			updates := []model.Update{account("no")}
			for i := range c.pods {
				ep := &model.Endpoint{Node: "other", Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 200, byte(i >> 8), byte(i)})},
					Labels: map[string]string{"projectcalico.org/namespace": "evil"}, Profiles: []string{"kns.evil", "ksa.evil.a"}}
				if i == 0 {
					ep.Node, ep.Iface = "n", "cali-evil"
				}
				if c.differ {
					ep.Labels["pod"] = fmt.Sprint(i)
				}
				updates = append(updates, model.EndpointUpdate{ID: model.WorkloadID("evil", fmt.Sprint("p", i)), Endpoint: ep})
			}
			for i := range c.policies {
				of := selector.And(selector.Equal("pcsa.role", "yes"), selector.NotEqual("app", fmt.Sprint(i)))
				updates = append(updates, model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: "evil", Name: fmt.Sprint("policy-", i)},
					Policy: &model.Policy{Tier: model.TierDefault, Selector: selector.Equal("projectcalico.org/namespace", "evil"), AppliesIngress: true,
						Ingress: []model.Rule{{Action: model.Allow, Source: model.Entity{Selector: of}}}}})
			}
			n.apply(updates...)
			longest, passes, total := 0.0, 0, 0.0
			turn := func(i int) {
				n.graph.Apply([]model.Update{account([]string{"no", "yes"}[i%2])})
				for more := true; more; passes++ {
					began := testutil.CPUTime(b)
					p := n.compiler.Update(n.graph.Flush())
					took := (testutil.CPUTime(b) - began).Seconds() * 1e3
					longest, total = max(longest, took), total+took
					more = p.More || p.FollowUp || len(n.graph.Turning()) > 0
				}
			}
			turn(1)
			turn(0)
			longest, passes, total = 0, 0, 0
			for i := 1; b.Loop(); i++ {
				turn(i)
			}
			b.ReportMetric(longest, "longest-ms")
			b.ReportMetric(float64(passes)/float64(b.N), "passes/op")
			b.ReportMetric(total/float64(b.N), "cpu-ms/op")
		})
	}
}
