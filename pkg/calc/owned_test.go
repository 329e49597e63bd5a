package calc

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/margay-project/margay/pkg/model"
)

// listing is a pod of this node that lists further sources.
func listing(id, addr string, prefixes ...string) model.EndpointUpdate {
	u := pod(id, addr)
	u.Endpoint.Sources = nets(prefixes...)
	return u
}

func TestFurtherSourcesReachThePolicyOfLocalEndpointsOnly(t *testing.T) {
	local, remote := listing("shop/gw", "10.0.0.1", "203.0.113.0/24"), listing("shop/far", "10.0.0.2", "198.51.100.0/24")
	remote.Endpoint.Node = "node-2"
	r := newRig(t, local, remote)
	if got := r.dp.Endpoints[local.ID].Sources; !slices.Equal(got, nets("203.0.113.0/24")) {
		t.Errorf("further sources %v", got)
	}
	if within := r.graph.sets.owned.within; !slices.Equal(within, nets("203.0.113.0/24")) {
		t.Errorf("covered: %v; a pod of another node lists sources for that node", within)
	}
	r.apply(pod("shop/gw", "10.0.0.1"))
	if got := r.dp.Endpoints[local.ID].Sources; len(got) != 0 {
		t.Errorf("further sources %v after they were taken away", got)
	}
}

// TestOwnedAddrsAreThoseInsideOfFurtherSources: endpoints of any node, nodes and cluster addresses of Services, as far as
// somebody lists them; external addresses of Services are what their authors write.
func TestOwnedAddrsAreThoseInsideOfFurtherSources(t *testing.T) {
	far, unconfirmed := pod("shop/far", "10.0.1.2"), pod("shop/said", "10.0.1.7")
	far.Endpoint.Node, unconfirmed.Endpoint.Node, unconfirmed.Endpoint.Unconfirmed = "node-2", "node-2", true
	r := newRig(t, pod("shop/near", "10.0.1.1"), far, unconfirmed, pod("shop/out", "10.9.0.1"),
		model.NodeUpdate{Name: "node-2", Node: &model.Node{Addrs: addrs("10.0.1.3", "172.16.0.2")}},
		model.ServiceUpdate{Key: model.ServiceKey{Namespace: "shop", Name: "s"},
			Service: &model.Service{Cluster: addrs("10.0.1.4"), External: addrs("10.0.1.5")}})
	check := func(when string, texts ...string) {
		t.Helper()
		if got, _ := r.graph.SetMembers(model.SetOwnedAddrs); !slices.Equal(got, nets(texts...)) {
			t.Errorf("%s: %v, want %v", when, got, texts)
		}
	}
	check("without further sources")
	r.apply(listing("shop/gw", "10.9.0.2", "10.0.1.0/24", "10.0.1.0/30", "203.0.113.0/24"))
	check("with them", "10.0.1.1/32", "10.0.1.2/32", "10.0.1.3/32", "10.0.1.4/32")
	more := pod("shop/more", "10.0.1.9")
	more.Endpoint.Node = "node-2"
	r.apply(more, model.Absent(far))
	check("after pods came and left", "10.0.1.1/32", "10.0.1.3/32", "10.0.1.4/32", "10.0.1.9/32")
	r.apply(model.NodeUpdate{Name: "node-2"}, listing("shop/gw", "10.9.0.2", "10.0.1.8/29", "10.9.0.0/16"))
	check("with others", "10.0.1.9/32", "10.9.0.1/32", "10.9.0.2/32")
	r.apply(pod("shop/gw", "10.9.0.2"))
	check("without any again")
}

// TestFurtherSourcesThatComeAndGoCostNothing: a tenant may change its list all the time, and each change of what is covered looks
// at every address of the cluster.
func TestFurtherSourcesThatComeAndGoCostNothing(t *testing.T) {
	g := New(thisNode)
	flush := func(updates ...model.Update) (covered int, changed bool) {
		g.Apply(updates)
		c := g.Flush()
		_, ok := c.Sets[model.SetOwnedAddrs]
		members, _ := g.SetMembers(model.SetOwnedAddrs)
		return len(members), ok
	}
	lists := func(prefixes ...string) model.Update { return listing("shop/gw", "10.9.0.2", prefixes...) }
	flush(pod("shop/a", "10.0.0.1"), pod("shop/b", "10.0.1.1"), lists(), model.InSync{})
	if n, changed := flush(lists("10.0.0.0/16")); n != 2 || !changed {
		t.Fatalf("%d addresses are covered, changed %t", n, changed)
	}
	for i, list := range []model.Update{lists(), lists("10.0.0.0/16"), lists("10.0.1.0/24"), lists()} {
		if n, changed := flush(list); n != 2 || changed {
			t.Errorf("change %d: %d addresses are covered, changed %t", i, n, changed)
		}
	}
	for range ownedPatience - 1 {
		if n, changed := flush(); n != 2 || changed {
			t.Fatalf("early: %d addresses are covered, changed %t", n, changed)
		}
	}
	if n, _ := flush(); n != 0 {
		t.Errorf("%d addresses are still covered", n)
	}
	walks := 0
	for i := range 1000 {
		was := slices.Clone(g.sets.owned.within)
		flush(lists(fmt.Sprintf("203.%d.%d.0/24", i/250, i%250)))
		if now := g.sets.owned.within; !slices.Equal(was, now) {
			walks++
		} else if !g.sets.owned.covers(netip.MustParseAddr(fmt.Sprintf("203.%d.%d.1", i/250, i%250))) {
			t.Fatalf("list %d is not covered", i)
		}
	}
	if n := len(g.sets.owned.within); walks > mostKept+2 || n > mostKept+1 {
		t.Errorf("1,000 lists: what is covered changed %d times, and is %d prefixes", walks, n)
	}
}

func TestAnAddressThatTheKubeletReportsIsOwnedAlsoIfItsRouteIsMissing(t *testing.T) {
	r := newRig(t, pod("shop/new", "10.0.1.1"), listing("shop/gw", "10.9.0.2", "10.0.1.0/24"), model.RoutesUpdate{Routes: map[netip.Addr]string{}})
	if got, _ := r.graph.SetMembers(model.SetOwnedAddrs); !slices.Equal(got, nets("10.0.1.1/32")) {
		t.Errorf("%v: another pod may send from the address of one that has just come", got)
	}
}
