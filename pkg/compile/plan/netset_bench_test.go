package plan_test

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
	"github.com/margay-project/margay/pkg/syncer"
)

// BenchmarkNetworkSetChange replaces a network set of 131,072 prefixes that a rule of this node refers to. The longest time that graph and
// compiler take without a pause is a metric, and how many addresses the kernel gets then, since changes of others wait for it.
func BenchmarkNetworkSetChange(b *testing.B) {
	for _, c := range []struct {
		name   string
		bits   int // of the longest networks' host part
		around bool
		label  [2]string
	}{
		{"addresses", 0, false, [2]string{"a", "a"}}, {"prefixes", 12, false, [2]string{"a", "a"}},
		{"prefixes in one", 12, true, [2]string{"a", "a"}}, {"other labels", 0, false, [2]string{"a", "b"}},
	} {
		b.Run(c.name, func(b *testing.B) {
			n, r := newNode(), rand.New(rand.NewPCG(1, 2))
			n.graph.InParts(syncer.MostAddresses)
			n.apply(model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "large"}, Policy: &model.Policy{
				Tier: model.TierDefault, Selector: selector.All(), AppliesEgress: true, Egress: []model.Rule{
					{Action: model.Allow, Destination: model.Entity{Selector: selector.Equal("large", "a")}},
					{Action: model.Log, Destination: model.Entity{Selector: selector.Equal("large", "b")}}}}})
			var turns [2][]model.Update
			for i := range turns {
				var nets []netip.Prefix
				for range 128 << 10 {
					p, _ := netip.AddrFrom4([4]byte{11, byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32())}).Prefix(32 - r.IntN(c.bits+1))
					nets = append(nets, p)
				}
				if c.around {
					nets[0] = netip.MustParsePrefix("11.0.0.0/8")
				}
				slices.SortFunc(nets, netip.Prefix.Compare)
				turns[i] = []model.Update{model.NetworkSetUpdate{ID: model.NetworkSetID{Namespace: "shop", Name: "large"},
					Set: &model.NetworkSet{Nets: slices.Compact(nets), Labels: map[string]string{"large": c.label[i]}}}}
			}
			var longest time.Duration
			most, passes := 0, 0
			turn := func(i int) {
				n.graph.Apply(turns[i%2])
				for more := true; more; {
					began := time.Now()
					p := n.compiler.Update(n.graph.Flush())
					longest, most = max(longest, time.Since(began)), max(most, len(p.Addrs)+len(p.LateAddrs))
					more = p.More || p.FollowUp || len(n.graph.Turning()) > 0
					passes++
				}
			}
			turn(0)
			longest, most, passes = 0, 0, 0
			for i := 1; b.Loop(); i++ {
				turn(i)
			}
			b.ReportMetric(longest.Seconds()*1e3, "longest-ms")
			b.ReportMetric(float64(most), "addresses-at-once")
			b.ReportMetric(float64(passes)/float64(b.N), "passes/op")
		})
	}
}
