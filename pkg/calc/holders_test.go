package calc

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/pkg/model"
)

// Addresses have the names of what owns them: of an address that several claim, the owner's.
func TestHoldersOfAddresses(t *testing.T) {
	addr := netip.MustParseAddr
	r := newRig(t,
		pod("x/a", "10.0.0.1", created(1)), pod("x/b", "10.0.0.2", on("node-2"), created(1)), pod("y/thief", "10.0.0.2", on("node-3"), created(2)),
		pod("y/claims-service", "10.9.0.1", on("node-2")),
		model.ServiceUpdate{Key: model.ServiceKey{Namespace: "x", Name: "db"},
			Service: &model.Service{Cluster: []netip.Addr{addr("10.9.0.1")}, External: []netip.Addr{addr("8.8.8.8"), addr("10.0.0.1")}}},
		model.NodeUpdate{Name: "node-2", Node: &model.Node{Addrs: []netip.Addr{addr("192.0.2.2"), addr("2001:db8::2")}}},
	)
	want := map[netip.Addr]Holder{
		addr("10.0.0.1"):    {Endpoint: model.WorkloadID("x", "a")},
		addr("10.0.0.2"):    {Endpoint: model.WorkloadID("x", "b")},
		addr("10.9.0.1"):    {Service: model.ServiceKey{Namespace: "x", Name: "db"}},
		addr("192.0.2.2"):   {Node: "node-2"},
		addr("2001:db8::2"): {Node: "node-2"},
	}
	asked := []netip.Addr{addr("8.8.8.8"), addr("10.0.0.3"), addr("10.0.0.1")}
	for a, h := range want {
		asked = append(asked, a)
		if !r.graph.MayBeHeld(a) || !r.graph.Holds(h, a) {
			t.Errorf("%v has %s: may be held %v, holds %v", h, a, r.graph.MayBeHeld(a), r.graph.Holds(h, a))
		}
		if r.graph.Holds(h, addr("10.0.0.3")) {
			t.Errorf("%v has an address that nothing has", h)
		}
	}
	if diff := cmp.Diff(want, r.graph.Holders(asked)); diff != "" {
		t.Error(diff)
	}
	if r.graph.MayBeHeld(addr("10.0.0.3")) || r.graph.MayBeHeld(addr("8.8.8.8")) {
		t.Error("addresses of nothing may be held")
	}
	r.apply(model.Absent(pod("x/b", "10.0.0.2")))
	if h := want[addr("10.0.0.2")]; r.graph.Holds(h, addr("10.0.0.2")) {
		t.Error("an endpoint that is gone holds its address")
	}
	if got := r.graph.Holders(asked)[addr("10.0.0.2")].Endpoint.Name; got != "thief" {
		t.Errorf("10.0.0.2 is %q's, want the one that is left", got)
	}
}

func BenchmarkHoldersOf100000Endpoints(b *testing.B) {
	g := New("n")
	for i := range 100_000 {
		id := model.WorkloadID("x", fmt.Sprint(i))
		a := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		g.Apply([]model.Update{model.EndpointUpdate{ID: id, Endpoint: &model.Endpoint{Node: "m", Addrs: []netip.Addr{a}}}})
	}
	g.Apply([]model.Update{model.InSync{}})
	g.Flush()
	asked := []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.0.9.1")}
	for b.Loop() {
		if len(g.Holders(asked)) != len(asked) {
			b.Fatal("some are missing")
		}
	}
}
