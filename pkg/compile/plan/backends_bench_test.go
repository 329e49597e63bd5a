package plan_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// BenchmarkBackendsChange replaces all ports of an EndpointSlice of a Service that a rule of this node names. The longest time that the
// compiler takes without a pause is a metric, since changes of others wait for it.
func BenchmarkBackendsChange(b *testing.B) {
	for _, c := range []struct{ objects, addrs, ports int }{{1, 1000, 100}, {1, 32, 2000}, {1, 40_000, 1}, {1, 128 << 10, 1}, {4096, 32, 1}} {
		b.Run(fmt.Sprintf("%dx%dx%d", c.objects, c.addrs, c.ports), func(b *testing.B) {
			to := model.Entity{Service: &model.ServiceKey{Namespace: "shop", Name: "web"}}
			n := newNode()
			n.apply(model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "to-service"}, Policy: &model.Policy{
				Tier: model.TierDefault, Selector: selector.All(), AppliesEgress: true, Egress: []model.Rule{{Action: model.Allow, Destination: to}}}})
			turns := [2][]model.Update{}
			for i := range c.objects { // with ports of their own, and the same addresses
				for turn := range turns {
					u := backends(c.addrs, c.ports, 1+(i+turn*c.objects)*c.ports)
					u.ID.Name = fmt.Sprint("web", i)
					turns[turn] = append(turns[turn], u)
				}
			}
			n.apply(turns[0]...)
			b.ReportAllocs()
			var graph, longest time.Duration
			for i := 1; b.Loop(); i++ {
				began := time.Now()
				n.graph.Apply(turns[i%2])
				ch := n.graph.Flush()
				graph += time.Since(began)
				for more := true; more; ch = (model.Changes{InSync: true}) {
					began := time.Now()
					p := n.compiler.Update(ch)
					longest = max(longest, time.Since(began))
					more = p.More || p.FollowUp
				}
			}
			b.ReportMetric(graph.Seconds()*1e3/float64(b.N), "graph-ms/op")
			b.ReportMetric(longest.Seconds()*1e3, "longest-ms")
		})
	}
}

func backends(addrs, ports, first int) model.EndpointSliceUpdate {
	s := &model.EndpointSlice{Service: model.ServiceKey{Namespace: "shop", Name: "web"}}
	for i := range addrs {
		s.Addrs = append(s.Addrs, netip.AddrFrom4([4]byte{10, byte(200 + i>>16), byte(i >> 8), byte(i)}))
	}
	for i := range ports {
		s.Ports = append(s.Ports, model.NamedPort{Protocol: model.ProtoTCP, Port: uint16(first + i)})
	}
	return model.EndpointSliceUpdate{ID: model.EndpointSliceID{Namespace: "shop", Name: "web"}, Slice: s}
}
