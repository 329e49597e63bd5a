package calc

import (
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/pkg/model"
)

// Whatever comes and goes past the limits on what selectors find, in parts or at once: sets are what the graph says they are, and when
// there is room again all is as if there had always been.
func TestWhenThereIsRoomAgainAllIsAsWithoutLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, dp, w, namespaces := newGraph(thisNode), newDataplane(), world{}, []string{"a", "b", "evil", "shop"}
		g.sets.spending.limit, g.sets.spending.perItem = rapid.IntRange(4, 32).Draw(t, "limit"), oneOf(t, "per item", 0, 0, 0, 2)
		g.sets.selected.found.tries = rapid.IntRange(1, 20).Draw(t, "tries")
		g.sets.relief.every, g.sets.selected.found.most = rapid.IntRange(1, 4).Draw(t, "every"), rapid.IntRange(2, 60).Draw(t, "prefixes found")
		if rapid.Bool().Draw(t, "few references") {
			g.sets.spending.references = rapid.IntRange(1, 8).Draw(t, "references")
		}
		if rapid.Bool().Draw(t, "little room") {
			r := g.sets.room
			r.common, r.assured, r.each = rapid.IntRange(0, 30).Draw(t, "common"), rapid.IntRange(0, 12).Draw(t, "assured"), rapid.IntRange(0, 12).Draw(t, "each")
		}
		g.prefixes.most = rapid.IntRange(10, 40).Draw(t, "prefixes")
		g.InParts(rapid.IntRange(0, 3).Draw(t, "in parts"))
		g.Apply([]model.Update{model.InSync{}})
		put := func(u model.Update) {
			w.set(u)
			g.Apply([]model.Update{u})
		}
		for i, namespace := range namespaces {
			put(pod(namespace+"/m", fmt.Sprint("10.9.0.", i)))
		}
		for range rapid.IntRange(1, 14).Draw(t, "batches") {
			for range rapid.IntRange(1, 8).Draw(t, "changes") {
				put(orAbsent(t, drawLimited(t)))
			}
			flushLimited(t, g, dp, rapid.Bool().Draw(t, "all parts"))
			if rapid.IntRange(0, 3).Draw(t, "restate") == 0 {
				g.Restate()
				dp = newDataplane()
				flushLimited(t, g, dp, false)
			}
		}
		g.sets.spending.limit, g.sets.spending.references, g.sets.selected.found.most = math.MaxInt/8, math.MaxInt/8, math.MaxInt/8
		g.prefixes.most, g.sets.room.common, g.sets.room.freed = math.MaxInt/8, math.MaxInt/8, true
		for _, u := range w { // changed ones of a namespace have the others looked at
			if ns, is := u.(model.NetworkSetUpdate); is {
				g.Apply([]model.Update{model.Absent(ns)})
				flushLimited(t, g, dp, true)
				g.Apply([]model.Update{ns})
			}
		}
		for _, namespace := range namespaces { // a change of a policy has those looked at that are refused
			p := policyOf("other", "app == 'none'")
			p.Key.Kind, p.Key.Namespace = model.KindNetworkPolicy, namespace
			put(p)
		}
		flushLimited(t, g, dp, true)
		g.Restate()
		dp = newDataplane()
		if err := dp.apply(g.Flush()); err != nil {
			t.Fatal(err)
		}
		requireSame(t, fresh(t, thisNode, w), dp)
		g.InParts(0)
		checkEmptied(t, g, dp, w)
		if n := len(g.sets.selected.found.spent) + len(g.sets.selected.found.short) + len(g.sets.selected.found.lacking) + g.sets.selected.found.left.Len() + len(g.sets.room.by) + len(g.sets.relief.later) + len(g.sets.relief.refused); n != 0 {
			t.Fatalf("something is left: %+v, %+v", g.sets.selected.found, g.sets.relief)
		}
	})
}

// flushLimited flushes once, or until nothing is to follow, and compares the sets in force with those of the graph.
func flushLimited(t *rapid.T, g *Graph, dp *dataplane, all bool) {
	for n := 0; n == 0 || g.HasMore() || all && len(g.Turning()) > 0; n++ {
		for id, c := range g.Flush().Sets {
			if err := dp.applySet(id, c); err != nil {
				t.Fatalf("set %s: %v", id, err)
			}
		}
		if checkSpending(t, g); n > 200 {
			t.Fatal("flushes without end")
		}
	}
	checkLeftOut(t, g)
	checkRoom(t, g)
	for id, members := range dp.Sets {
		if s := g.sets.byID[id]; s == nil || s.len() != len(members) {
			t.Fatalf("set %s has %v, and in the graph it is %+v", id, members, s)
		}
	}
}

// checkLeftOut compares the sets of selectors with the network sets that they find: each prefix is in one, or what covers it is among what is
// left out, but for those that come in parts.
func checkLeftOut(t *rapid.T, g *Graph) {
	coming := map[model.NetworkSetID]bool{}
	for _, s := range g.turning {
		coming[s.id] = !s.out
	}
	for id, ns := range g.networkSets {
		if coming[id] || strings.HasSuffix(id.Name, " (before)") {
			continue
		}
		for s := range ns.Group().Selections() {
			d := s.Use.addrs
			if d == nil {
				continue
			}
			for p := range masked(ns.value.Nets) {
				if out := d.sets[leftOut]; !d.sets[portKey{}].members.has(p) && (out == nil || !out.contains(p.Addr())) {
					t.Fatalf("%s of network set %s is neither in a set nor left out", p, id)
				}
			}
		}
	}
}

// drawLimited is a change of anything, with policies of two namespaces and of none, and network sets that are large for the limits.
func drawLimited(t *rapid.T) model.Update {
	switch rapid.IntRange(0, 10).Draw(t, "what") {
	case 0, 1:
		u := model.NetworkSetUpdate{ID: model.NetworkSetID{Namespace: oneOf(t, "namespace", "", "a", "b"), Name: oneOf(t, "network set", "n1", "n2")},
			Set: &model.NetworkSet{Labels: drawLabels(t, "app", "role")}}
		if u.ID.Namespace != "" {
			u.Set.Profiles = []string{"kns." + u.ID.Namespace}
		}
		if rapid.Bool().Draw(t, "wide") {
			u.Set.Nets = nets("10.0.0.0/28")
		}
		first := rapid.IntRange(0, 20).Draw(t, "first")
		for i := range rapid.IntRange(0, 14).Draw(t, "prefixes") {
			u.Set.Nets = append(u.Set.Nets, netip.MustParsePrefix(fmt.Sprintf("10.0.0.%d/32", first+i)))
		}
		return u
	case 2:
		u := drawAnyPolicy(t)
		u.Key.Namespace = "b"
		return u
	case 3:
		u := drawAnyPolicy(t)
		u.Key.Namespace, u.Key.Kind = "", model.KindGlobalNetworkPolicy
		return u
	case 4, 5, 6, 7:
		return drawRelieved(t)
	}
	return drawUpdate(t)
}
