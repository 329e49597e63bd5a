package agent

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/flows"
	"github.com/margay-project/margay/pkg/model"
)

// numbered gives each endpoint the interface of the number that its address ends with.
type numbered struct{ dataplane.Dataplane }

func (n numbered) Endpoints() []dataplane.EndpointStatus {
	list := n.Dataplane.Endpoints()
	for i := range list {
		bytes := list[i].Addrs[0].As4()
		list[i].Ifindex = uint32(bytes[3])
	}
	return list
}

// named is what a flow from the address to the interface of that number has for names, as one string.
func named(t *testing.T, n *FlowNames, ifindex uint32, from string) string {
	t.Helper()
	r := &flows.Record{Direction: flows.Ingress, Packet: flows.Packet{Src: netip.AddrPortFrom(netip.MustParseAddr(from), 1)}}
	n.Name(t.Context(), []flows.Unnamed{{Ifindex: ifindex, Record: r}})
	text := r.Endpoint + " on " + r.Interface
	if r.Peer != nil {
		text += " from " + r.Peer.Kind + " " + r.Peer.Name
	}
	return text
}

func TestFlowsHaveTheNamesOfTheirMoment(t *testing.T) {
	between := func(dp *dataplane.Fake) dataplane.Dataplane { return numbered{dp} }
	runWith(t, between, func(t *testing.T, r *rig) {
		n := &FlowNames{Loop: r.Loop}
		want := func(want string, ifindex uint32, from string) {
			t.Helper()
			if got := named(t, n, ifindex, from); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
		remote := pod(3)
		remote.Endpoint = &model.Endpoint{Node: "m", Addrs: remote.Endpoint.Addrs}
		r.put(pod(1), remote, model.NodeUpdate{Name: "m", Node: &model.Node{Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}},
			model.ServiceUpdate{Key: model.ServiceKey{Namespace: "t", Name: "s"}, Service: &model.Service{Cluster: []netip.Addr{netip.MustParseAddr("10.9.0.1")}}})
		r.store.Sync()
		synctest.Wait()
		want("t/p1 on cali1 from pod t/p3", 1, "10.0.0.3")
		want("t/p1 on cali1 from node m", 1, "192.0.2.1")
		want("t/p1 on cali1 from service t/s", 1, "10.9.0.1")
		want("t/p1 on cali1", 1, "10.0.0.2")
		want(" on ", 2, "8.8.8.8")

		r.put(pod(2)) // both as an endpoint and as a peer
		want("t/p2 on cali2 from pod t/p1", 2, "10.0.0.1")
		want("t/p1 on cali1 from pod t/p2", 1, "10.0.0.2")

		heir := model.EndpointUpdate{ID: podID(4), Endpoint: remote.Endpoint} // of an address
		r.put(model.Absent(remote), heir)
		want("t/p1 on cali1 from pod t/p4", 1, "10.0.0.3")
		r.put(model.Absent(heir), model.Absent(pod(2)))
		want("t/p2 on cali2", 2, "10.0.0.3") // its last events come when it is gone
	})
}

// A loop that is busy holds records up for a moment only, and names from before have to do.
func TestFlowsDoNotWaitForABusyLoop(t *testing.T) {
	between := func(dp *dataplane.Fake) dataplane.Dataplane { return numbered{dp} }
	runWith(t, between, func(t *testing.T, r *rig) {
		n := &FlowNames{Loop: r.Loop}
		r.put(pod(1), pod(2))
		r.store.Sync()
		synctest.Wait()
		want := "t/p1 on cali1 from pod t/p2"
		if got := named(t, n, 1, "10.0.0.2"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		r.dp.Set(dataplane.FakeSettings{Delay: time.Minute})
		r.store.Put(pod(3))
		time.Sleep(time.Second)
		started := time.Now()
		if got := named(t, n, 1, "10.0.0.2"); got != want {
			t.Errorf("%q while the loop is busy, want %q", got, want)
		}
		if waited := time.Since(started); waited != namesWithin {
			t.Errorf("waited %v, want %v", waited, namesWithin)
		}
	})
}

func TestNamesThatAreKeptAreBounded(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.store.Sync()
		synctest.Wait()
		n := &FlowNames{Loop: r.Loop, interfaces: map[uint32]namedInterface{}, peers: map[netip.Addr]namedPeer{}}
		for i := range uint32(2 * namesKept) {
			n.interfaces[i] = namedInterface{}
			n.peers[netip.AddrFrom4([4]byte{byte(i >> 16), byte(i >> 8), byte(i), 1})] = namedPeer{}
		}
		named(t, n, 1, "10.0.0.2")
		if len(n.interfaces)+len(n.peers) > 2*namesKept {
			t.Errorf("%d interfaces and %d addresses are kept, want at most %d each", len(n.interfaces), len(n.peers), namesKept)
		}
	})
}
