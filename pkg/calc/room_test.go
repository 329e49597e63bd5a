package calc

import (
	"fmt"
	"math"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/pkg/model"
)

// Whatever comes and goes of network sets and EndpointSlices: the room of all namespaces is counted right and is never exceeded, and nothing
// is left out for which there is room.
func TestRoomIsCountedAndUsed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, dp, w := newGraph(thisNode), newDataplane(), world{}
		r := g.sets.room
		g.external.most = rapid.IntRange(3, 12).Draw(t, "external addresses")
		r.common, r.assured, r.each = rapid.IntRange(0, 20).Draw(t, "common"), rapid.IntRange(0, 8).Draw(t, "assured"), rapid.IntRange(0, 6).Draw(t, "each")
		g.sets.selected.found.tries = rapid.IntRange(1, 8).Draw(t, "tries")
		put := func(u model.Update) {
			w.set(u)
			g.Apply([]model.Update{u})
		}
		put(pod("shop/a", "10.9.0.1"))
		g.Apply([]model.Update{model.InSync{}})
		for range rapid.IntRange(1, 12).Draw(t, "batches") {
			for range rapid.IntRange(1, 4).Draw(t, "changes") {
				put(orAbsent(t, drawOfRoom(t)))
			}
			for n := 0; n == 0 || g.HasMore(); n++ {
				if err := dp.apply(g.Flush()); err != nil {
					t.Fatal(err)
				}
			}
			checkRoom(t, g)
			checkLeftOut(t, g)
		}
		r.common, r.freed, g.external.most = math.MaxInt/8, true, MaxExternal
		for _, u := range w { // changed ones have the others of a namespace looked at
			if s, is := u.(model.ServiceUpdate); is {
				g.Apply([]model.Update{model.Absent(s)})
				if err := dp.apply(g.Flush()); err != nil {
					t.Fatal(err)
				}
				g.Apply([]model.Update{s})
			}
		}
		for n := 0; n == 0 || g.HasMore(); n++ {
			if err := dp.apply(g.Flush()); err != nil {
				t.Fatal(err)
			}
		}
		requireSame(t, fresh(t, thisNode, w), dp)
		checkEmptied(t, g, dp, w)
		if r.all != (share{}) || len(r.by)+len(r.services)+len(g.sets.services.crowded) > 0 {
			t.Fatalf("something is left: %+v", r)
		}
	})
}

// drawOfRoom is a policy that refers to Services and network sets, or one of these.
func drawOfRoom(t *rapid.T) model.Update {
	namespace, n := oneOf(t, "namespace", "a", "b"), rapid.IntRange(0, 7).Draw(t, "prefixes")
	switch oneOf(t, "object", "policy", "network set", "slice", "slice", "Service") {
	case "policy":
		p := toService(oneOf(t, "action", model.Allow, model.Deny, model.Pass), namespace+"/s")
		p.Key.Name += namespace
		if rapid.Bool().Draw(t, "only to it") {
			p.Policy.Ingress = nil
		}
		p.Policy.Egress = append(p.Policy.Egress, model.Rule{Action: model.Deny, Index: 1, Destination: model.Entity{Selector: sel(oneOf(t, "selector", "all()", "found == 'yes'"))}})
		return p
	case "Service":
		u := evilService(oneOf(t, "name", "x", "y"), rapid.IntRange(0, 5).Draw(t, "first"), n)
		u.Key.Namespace = namespace
		return u
	case "network set":
		return found(namespace, oneOf(t, "name", "n", "m"), oneOf(t, "found", "yes", "no"), n, 1)
	}
	return backendsOf(namespace+"/s", oneOf(t, "name", "x", "y"), oneOf(t, "first", byte(1), 2), n, rapid.IntRange(0, 2).Draw(t, "ports"))
}

// checkRoom compares what is counted of the room of all namespaces with the sets, and looks for what is left out though there is room for it.
func checkRoom(t *rapid.T, g *Graph) {
	of, r := map[*held]int{}, g.sets.room
	for _, d := range g.sets.definitions {
		if d.key.kind != kindSelector || d.selection == nil {
			continue
		}
		for gr := range d.selection.Groups() {
			namespace, _ := namespaceOf(gr)
			for it := range gr.Items() {
				switch n := it.Value.nets(); {
				case d.has(namespace, it):
					if of[it.Value.extra.held]++; it.Value.extra.held.nets < n {
						t.Fatalf("%d prefixes count as %+v", n, it.Value.extra.held)
					}
				case n > 0 && (it.Value.extra.held.sets > 0 || r.has(namespace, n)) && g.sets.selected.found.isRoom(d, namespace, n):
					t.Fatalf("%d prefixes of namespace %q are left out, and there is room: %+v", n, namespace, r)
				}
			}
		}
	}
	by := map[string]int{}
	for h, sets := range of {
		if by[h.namespace] += h.nets; h.sets != sets {
			t.Fatalf("%d sets have %+v", sets, h)
		}
	}
	for id, s := range g.sets.services.backends.slices {
		want := len(s.Addrs)
		if s.contributed == nil || s.counts() == covered {
			want = 0
		}
		if by[id.Namespace] += s.held; s.held != want {
			t.Fatalf("EndpointSlice %v has room for %d addresses, want %d", id, s.held, want)
		}
		if s.crowded != (g.sets.services.crowded[id] == s) || s.crowded && r.has(id.Namespace, len(s.Addrs)) {
			t.Fatalf("EndpointSlice %v: %+v, and room is %+v", id, s, r)
		}
	}
	for key, s := range g.services {
		if !g.serviceTable.isOut(key) {
			by[key.Namespace] += len(s.External)
		} else if !g.external.isOut(key.Namespace, key.Name) && r.has(key.Namespace, len(s.External)) {
			t.Fatalf("Service %s is left out, and room is %+v", key, r)
		}
		for _, a := range s.External {
			if !g.serviceTable.isOut(key) && !g.sets.byID[model.SetServiceAddrs].contains(a) {
				t.Fatalf("%s of Service %s is not in the set", a, key)
			}
		}
	}
	all := share{}
	for namespace := range by {
		s := r.by[namespace]
		all.common, all.assured = all.common+s.common, all.assured+s.assured
		if namespace == "" {
			continue
		}
		if s.common+s.assured != by[namespace] || s.assured > r.each {
			t.Fatalf("namespace %s has %d prefixes, counted as %+v", namespace, by[namespace], s)
		}
	}
	if all != r.all || all.common > r.common || all.assured > r.assured || len(r.by) > len(by) {
		t.Fatalf("all: %+v, of %+v", all, r)
	}
}

// Who has many prefixes leaves others theirs that are assured, and gives back the common ones first.
func TestPrefixesAreAssured(t *testing.T) {
	r := newRoom()
	r.common, r.assured, r.each = 10, 6, 4
	want := func(namespace string, n int, has bool, all share) {
		t.Helper()
		if r.has(namespace, n) != has {
			t.Errorf("room for %d of %s: %t", n, namespace, !has)
		}
		if r.spend(namespace, n); r.all != all {
			t.Errorf("%+v, want %+v", r.all, all)
		}
	}
	want("", 1000, true, share{})
	want("a", 14, true, share{10, 4})
	want("b", 2, true, share{10, 6})
	if r.has("b", 1) || r.has("c", 1) {
		t.Error("more is assured than there is")
	}
	want("a", -9, true, share{1, 6})
	want("c", 9, true, share{10, 6})
	want("a", -5, true, share{9, 2})
	want("c", 5, true, share{10, 6})
	if want("c", -14, true, share{0, 2}); len(r.by) != 1 {
		t.Errorf("%+v", r.by)
	}
}

// A rule that refers to a Service of which an EndpointSlice has no room fails closed until there is some, and it is reported.
func TestRulesOfServicesWithoutRoomFailClosed(t *testing.T) {
	g, dp := New(thisNode, WithRoom(1)), newDataplane()
	flushed(t, g, dp, pod("shop/a", "10.0.0.1"), toService(model.Deny, "evil/s"), model.InSync{},
		backendsOf("evil/s", "a", 1, 1, 1), backendsOf("evil/s", "b", 2, 3, 2))
	want := func(egress, ingress string, problems int) {
		t.Helper()
		of := [2]string{fmt.Sprint(rulesOf(t, g, "shop/a", model.Egress)), fmt.Sprint(rulesOf(t, g, "shop/a", model.Ingress))}
		if of != [2]string{egress, ingress} {
			t.Errorf("rules %q, want %s and %s", of, egress, ingress)
		}
		n := 0
		for _, p := range g.Problems() {
			if p.Object == "Service evil/s" {
				n++
			}
		}
		if n != problems {
			t.Errorf("%d problems: %+v", n, g.Problems())
		}
	}
	const past = "backends left out of service evil/s"
	want("[Deny 0 ports Deny in "+past+", tcp (2)]", "[Deny in service evil/s (0) Deny in "+past+" (2)]", 1)
	g.room.common, g.room.freed = 1, true
	flushed(t, g, dp)
	want("[Deny 1 ports Deny in "+past+", tcp (1)]", "[Deny in service evil/s (1) Deny in "+past+" (1)]", 1)
	flushed(t, g, dp, model.Absent(backendsOf("evil/s", "a", 1, 1, 1)), backendsOf("evil/s", "b", 2, 1, 2))
	want("[Deny 2 ports]", "[Deny in service evil/s (1)]", 0)
}

// A network set that has room keeps it while it changes in parts, with other prefixes or other labels, whatever others come meanwhile.
func TestANetworkSetThatChangesInPartsKeepsItsRoom(t *testing.T) {
	ofShop := func(first byte, n int, labels ...string) model.NetworkSetUpdate {
		u := found("shop", "large", "yes", 0, 0)
		for _, l := range labels {
			u.Set.Labels[l] = "on"
		}
		for i := range n {
			u.Set.Nets = append(u.Set.Nets, netip.PrefixFrom(netip.AddrFrom4([4]byte{first, 0, 0, byte(i)}), 32))
		}
		return u
	}
	for name, now := range map[string]model.NetworkSetUpdate{
		"other prefixes": ofShop(10, 20), "other labels": ofShop(10, 20, "more"), "none in the end": ofShop(10, 1),
	} {
		t.Run(name, func(t *testing.T) {
			g, dp := newGraph(thisNode), newDataplane()
			g.room.common, g.room.assured = 50, 0
			g.InParts(2)
			flushed(t, g, dp, pod("shop/a", "10.0.0.1"), policyOf("p", "all()", fromSelector("found == 'yes'")), model.InSync{})
			for flushed(t, g, dp, ofShop(20, 20)); len(g.Turning()) > 0; {
				flushed(t, g, dp)
			}
			flushed(t, g, dp, now)
			for i := 0; len(g.Turning()) > 0 || i < 10; i++ {
				flushed(t, g, dp, found("evil", fmt.Sprint(i), "yes", 4, i))
				if g.networkSets[now.ID].hasNoRoom() {
					t.Fatalf("it has no room after %d parts: %+v", 1+i, g.room)
				}
			}
		})
	}
}
