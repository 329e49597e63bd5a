package calc

import (
	"fmt"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/pkg/model"
)

// Whatever comes in between, and however little is done for a namespace in one flush, in the end all is as if it had changed at once.
func TestObjectsChangeInTurnAndInTheEndAllHave(t *testing.T) {
	waited := 0
	rapid.Check(t, func(t *rapid.T) {
		g, dp, w := newGraph(thisNode), newDataplane(), world{}
		g.InParts(rapid.IntRange(1, 12).Draw(t, "most"))
		g.inherited.atOnce = rapid.IntRange(1, 2).Draw(t, "at once")
		flush := func() {
			if err := dp.apply(g.Flush()); err != nil {
				t.Fatalf("illegal changes: %v", err)
			}
			waited += len(g.pending.endpoints) + len(g.pending.networkSets)
			checkSpending(t, g)
		}
		put := func(u model.Update) {
			w.set(u)
			g.Apply([]model.Update{u})
		}
		for range rapid.IntRange(0, 30).Draw(t, "at first") {
			put(drawInheriting(t))
		}
		g.Apply([]model.Update{model.InSync{}})
		if flush(); len(g.Turning()) > 0 {
			t.Fatal("something is left for the flush after the first one")
		}
		for range rapid.IntRange(1, 15).Draw(t, "flushes") {
			for range rapid.IntRange(0, 12).Draw(t, "changes") {
				put(orAbsent(t, drawInheriting(t)))
			}
			flush()
		}
		for n := 0; n == 0 || len(g.Turning()) > 0; n++ {
			if flush(); n > 200 {
				t.Fatal("it does not end")
			}
		}
		requireSame(t, fresh(t, thisNode, w), dp)
		g.InParts(0)
		checkEmptied(t, g, dp, w)
	})
	if waited == 0 { // some 60 do
		t.Error("no object has waited, so nothing was tested")
	}
}

// Very many pods of a tenant change the label by which very many selectors find each of them, and so do network sets. A flush changes one of either
// kind of object, and those of another tenant at once. Pods that go, and such as have other addresses, do not wait.
func TestObjectsThatManySelectorsFindChangeInTurn(t *testing.T) {
	const objects, selectors, most = 10, 50, 40
	g, dp := New(thisNode), newDataplane()
	g.InParts(1000)
	g.inherited.atOnce = most
	far := func(i int, role string) model.EndpointUpdate {
		u := pod("evil/p", fmt.Sprintf("10.1.0.%d", i), on("node-2"))
		u.ID.Name, u.Endpoint.Labels["role"] = fmt.Sprint("p", i), role
		return u
	}
	set := func(i int, role string) model.Update {
		return model.NetworkSetUpdate{ID: model.NetworkSetID{Namespace: "evil", Name: fmt.Sprint("s", i)}, Set: &model.NetworkSet{
			Nets: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 20, 0, byte(i)}), 32)}, Labels: map[string]string{"role": role}}}
	}
	updates := []model.Update{pod("shop/a", "10.0.0.2"), namespace("evil"), namespace("shop")}
	for i := range selectors {
		p := byLabels("shop", fmt.Sprint("p", i), 0, 1)
		p.Policy.Ingress[0].Source.Selector = sel(fmt.Sprintf("role == 'on' && app != 'x%d'", i))
		updates = append(updates, p)
	}
	for i := range objects {
		updates = append(updates, far(i, "off"), set(i, "off"))
	}
	flushed(t, g, dp, append(updates, model.InSync{})...)
	joined := func(c model.Changes) map[netip.Addr]bool {
		all := map[netip.Addr]bool{}
		for _, a := range added(c) {
			all[a] = true
		}
		return all
	}
	updates = nil
	for i := range objects {
		updates = append(updates, far(i, "on"), set(i, "on"))
	}
	other := far(200, "on")
	other.ID.Namespace = "shop"
	g.Apply(append(updates, other))
	flushes := 0
	for ; flushes == 0 || len(g.Turning()) > 0; flushes++ {
		now := joined(g.Flush())
		if flushes == 0 && !now[netip.MustParseAddr("10.1.0.200")] {
			t.Error("a pod of another namespace waits")
		}
		if delete(now, netip.MustParseAddr("10.1.0.200")); len(now) > 1 {
			t.Errorf("flush %d changes %v", flushes, now)
		}
		if g.Turning()["shop"] {
			t.Error("the other namespace waits")
		}
		if flushes > 4*objects {
			t.Fatal("it does not end")
		}
	}
	if flushes < 2*objects {
		t.Errorf("%d flushes, want one for each object", flushes)
	}
	// All have another label again, one goes, and one has another address.
	updates = nil
	for i := range objects {
		updates = append(updates, far(i, "off"))
	}
	moved := far(1, "off")
	moved.Endpoint.Addrs = []netip.Addr{netip.MustParseAddr("10.1.1.1")}
	g.Apply(append(updates, model.Absent(far(0, "off")), moved))
	gone := map[netip.Addr]bool{}
	for _, s := range g.Flush().Sets {
		for _, p := range s.Removed {
			gone[p.Addr()] = true
		}
	}
	if !gone[netip.MustParseAddr("10.1.0.0")] || !gone[netip.MustParseAddr("10.1.0.1")] || len(gone) > 4 {
		t.Errorf("the pod that goes and the one that gets another address are to leave all sets, and few others: %v leave", gone)
	}
}
