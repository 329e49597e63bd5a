package explain

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/model"
)

// ofManyBackends is a cluster of 200 pods of one workload, and a Service whose backends are n addresses, as its author has written them.
func ofManyBackends(n int, headless bool) *calc.Graph {
	const external = "192.0.2.1"
	updates := []model.Update{model.InSync{}}
	for i := range 200 {
		addr := netip.AddrFrom4([4]byte{10, 9, 0, byte(i)})
		updates = append(updates, model.EndpointUpdate{ID: model.WorkloadID("shop", fmt.Sprintf("web-%d", i)), Endpoint: &model.Endpoint{Node: "n1",
			Addrs: []netip.Addr{addr}, Labels: map[string]string{"statefulset.kubernetes.io/pod-name": fmt.Sprintf("web-%d", i)}}})
	}
	key, port := model.ServiceKey{Namespace: "evil", Name: "x"}, model.NamedPort{Name: "http", Protocol: model.ProtoTCP, Port: 80}
	service := &model.Service{Ports: []model.NamedPort{port}, External: []netip.Addr{netip.MustParseAddr(external)}, Headless: headless}
	updates = append(updates, model.ServiceUpdate{Key: key, Service: service})
	for i := 0; i < n; i += 100 {
		slice := &model.EndpointSlice{Service: key, Ports: []model.NamedPort{port}}
		for j := range min(100, n-i) {
			slice.Addrs = append(slice.Addrs, netip.AddrFrom4([4]byte{172, byte((i + j) >> 16), byte((i + j) >> 8), byte(i + j)}))
		}
		updates = append(updates, model.EndpointSliceUpdate{ID: model.EndpointSliceID{Namespace: "evil", Name: fmt.Sprint(i)}, Slice: slice})
	}
	g := calc.New("n1")
	g.Apply(updates)
	g.Flush()
	return g
}

// Somebody asks about an address outside of the cluster, and a tenant has made it one of a Service with very many backends. The agent enforces
// nothing while it looks the ends up.
func TestAServiceWithManyBackendsKeepsNobodyWaiting(t *testing.T) {
	for dst, headless := range map[string]bool{"192.0.2.1": false, "evil/x": true} {
		cost := func(backends int) time.Duration {
			g := ofManyBackends(backends, headless)
			return testutil.LeastCPUTime(t, func() {
				q, err := Resolve(g, Request{Src: "sts/web", Namespace: "shop", Dst: dst, Port: 80})
				if err != nil {
					t.Fatal(err)
				}
				if len(q.flows) != mostFlows || !strings.Contains(q.note, "only 64 of ") {
					t.Errorf("%s: %d flows, and the note %q", dst, len(q.flows), q.note)
				}
				if more := strings.Contains(q.note, "further backends of Service evil/x"); more != (backends > mostBackends) {
					t.Errorf("%s: of %d backends the note is %q", dst, backends, q.note)
				}
			})
		}
		few, many := cost(mostBackends), cost(1<<17)
		t.Logf("%s: %s with %d backends, %s with %d", dst, few, mostBackends, many, 1<<17)
		if many > 8*few {
			t.Errorf("%s: the ends are looked up in %s with %d backends, and in %s with %d", dst, few, mostBackends, many, 1<<17)
		}
	}
}
