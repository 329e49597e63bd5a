package calc

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/model"
)

// Objects of a namespace that has more of them than count are no dearer than others, however many of them change at once: who counts is
// worked out once for all. Before, it was for each, and an agent that started where one namespace had 20,000 Services with an external
// address each was busy for minutes.
func TestObjectsOfACrowdedNamespaceCostNoMoreThanOthers(t *testing.T) {
	const objects, most = 1500, 8
	for name, object := range map[string]func(namespace string, i, turn int) model.Update{
		"Services": func(namespace string, i, turn int) model.Update {
			s := &model.Service{}
			for k := range 4 { // 6,000 in all
				s.External = append(s.External, netip.AddrFrom4([4]byte{203, byte(i >> 8), byte(i), byte(turn + k)}))
			}
			return model.ServiceUpdate{Key: model.ServiceKey{Namespace: namespace, Name: fmt.Sprint("s", i)}, Service: s}
		},
		"network sets": func(namespace string, i, turn int) model.Update {
			s := &model.NetworkSet{Labels: map[string]string{"turn": fmt.Sprint(turn)}}
			for k := range 100 { // 150,000 in all
				s.Nets = append(s.Nets, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), byte(k)}), 32))
			}
			return model.NetworkSetUpdate{ID: model.NetworkSetID{Namespace: namespace, Name: fmt.Sprint("s", i)}, Set: s}
		},
		"EndpointSlices": func(namespace string, i, turn int) model.Update {
			s := &model.EndpointSlice{Service: model.ServiceKey{Namespace: namespace, Name: "s"},
				Ports: []model.NamedPort{{Protocol: model.ProtoTCP, Port: uint16(1 + turn)}}}
			for k := range 100 { // 150,000 in all
				s.Addrs = append(s.Addrs, netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), byte(k)}))
			}
			return model.EndpointSliceUpdate{ID: model.EndpointSliceID{Namespace: namespace, Name: fmt.Sprint("s", i)}, Slice: s}
		},
	} {
		t.Run(name, func(t *testing.T) {
			cost := func(namespaces int) time.Duration {
				g, turn := New(thisNode), 0
				return testutil.LeastCPUTime(t, func() {
					turn++
					updates := []model.Update{model.InSync{}}
					for i := range objects {
						updates = append(updates, object(fmt.Sprint("evil", i%namespaces), i, turn%2))
					}
					g.Apply(updates)
					g.Flush()
				})
			}
			others, crowded := cost(objects/10), cost(1)
			t.Logf("in namespaces of their own: %s, in one: %s", others, crowded)
			if crowded > most*others {
				t.Errorf("%d objects cost %s in one namespace and %s in many", objects, crowded, others)
			}
		})
	}
}
