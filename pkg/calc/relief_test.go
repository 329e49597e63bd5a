package calc

import (
	"fmt"
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/pkg/model"
)

// account is the ServiceAccount other/a with labels x0, x1 and so on.
func account(labels int) model.ProfileUpdate {
	p := &model.Profile{Labels: map[string]string{}}
	for i := range labels {
		p.Labels[fmt.Sprint("pcsa.x", i)] = "on"
	}
	return model.ProfileUpdate{Name: "ksa.other.a", Profile: p}
}

// byLabels is a policy of a namespace with a selector for each of these labels.
func byLabels(namespace, name string, first, labels int) model.PolicyUpdate {
	p := selecting(namespace, name, 0, labels)
	for i := range p.Policy.Ingress {
		p.Policy.Ingress[i].Source.Selector = sel(fmt.Sprintf("pcsa.x%d == 'on'", first+i))
	}
	return p
}

// One write to a ServiceAccount has 20 selectors find 100 pods each, which found nothing when their policy came. The policy is refused, and
// those of others that use some of the same selectors are not.
func TestSelectorsThatComeToFindTooMuchFindNothingMore(t *testing.T) {
	const pods, labels, limit = 100, 20, 1000
	g, dp := market(t, 0, limit)
	g.sets.relief.every = 50
	updates := []model.Update{account(0), byLabels("evil", "p", 0, labels), byLabels("evil", "small", labels, 1), byLabels("shop", "p", 0, 2)}
	for i := range pods {
		updates = append(updates, pod(fmt.Sprint("other/p", i), fmt.Sprintf("10.1.0.%d", 1+i), on("node-2"), profiles("kns.other", "ksa.other.a"), label("n", fmt.Sprint(i%2))))
	}
	flushed(t, g, dp, updates...)
	wantRefused(t, g, "", "")

	g.Apply([]model.Update{account(labels)})
	c := g.Flush()
	members := 0
	for id, s := range c.Sets {
		if members += len(s.Added); s.Gone && len(s.Added)+len(s.Removed) > 0 {
			t.Errorf("set %s is gone with %+v", id, s)
		}
		if err := dp.applySet(id, s); err != nil {
			t.Fatal(err)
		}
	}
	if members != 2*pods {
		t.Errorf("%d members are new, want those of the other policy", members)
	}
	wantRefused(t, g, "p small", "")
	if sets, is := g.Turning()["evil"]; sets || !is {
		t.Error("no flush is to follow")
	}
	flushed(t, g, dp)
	wantRefused(t, g, "p", "")
	if len(g.Turning()) > 0 || len(g.sets.definitions) != 3 {
		t.Errorf("%v to follow, %d definitions", g.Turning(), len(g.sets.definitions))
	}

	flushed(t, g, dp, account(2))
	wantRefused(t, g, "p", "") // as long as no policy of the namespace changes
	flushed(t, g, dp, byLabels("evil", "other", 0, 1))
	wantRefused(t, g, "", "")
}

// Policies that were refused before get no room that those in force had.
func TestReliefLooksAtPoliciesInTheirTurn(t *testing.T) {
	g, dp := admitted(t, 100, func(i int) model.EndpointUpdate { return otherPod(i, fmt.Sprint("10.1.0.", 1+i)) })
	flushed(t, g, dp, byLabels("evil", "a", 0, 20), selecting("evil", "b", 0, 5), selecting("evil", "z", 100, 9))
	wantRefused(t, g, "z", "")
	flushed(t, g, dp, account(11))
	wantRefused(t, g, "a b z", "")
	flushed(t, g, dp)
	wantRefused(t, g, "a z", "")
}

// Whatever comes and goes while namespaces have too much found: the sets that are in force have the members that they would have without limits.
func TestReliefLeavesTheSetsOfOthersRight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, dp, w := newGraph(thisNode), newDataplane(), world{}
		g.sets.spending.limit, g.sets.spending.perItem, g.sets.relief.every = rapid.IntRange(8, 24).Draw(t, "limit"), 0, rapid.IntRange(1, 8).Draw(t, "every")
		first := []model.Update{model.InSync{}, pod("evil/m", "10.0.0.1"), pod("shop/a", "10.0.0.2")}
		g.Apply(first)
		for _, u := range first[1:] {
			w.set(u)
		}
		for range rapid.IntRange(1, 12).Draw(t, "batches") {
			for range rapid.IntRange(1, 6).Draw(t, "changes") {
				u := drawRelieved(t)
				w.set(u)
				g.Apply([]model.Update{u})
			}
			for n := 0; n == 0 || len(g.Turning()) > 0; n++ {
				for id, c := range g.Flush().Sets {
					if err := dp.applySet(id, c); err != nil {
						t.Fatal(err)
					}
				}
				if checkSpending(t, g); n > 10 {
					t.Fatal("flushes without end")
				}
			}
			all := fresh(t, thisNode, w)
			for id, members := range dp.Sets {
				if want, known := all.Sets[id]; known && !maps.Equal(members, want) {
					t.Fatalf("set %s has %v, want %v", id, members, want)
				}
			}
			checkRelieved(t, g, dp)
		}
	})
}

// checkRelieved looks for too much that is found until there is none any more: those that are admitted again find no more than they may.
func checkRelieved(t *rapid.T, g *Graph, dp *dataplane) {
	for n := 0; ; n++ {
		g.sets.joined = g.sets.relief.every
		if g.sets.relieve(); len(g.sets.relief.refused) == 0 {
			return
		}
		if n > 3 {
			t.Fatal("what is admitted finds too much again and again")
		}
		for first := true; first || len(g.Turning()) > 0; first = false {
			for id, c := range g.Flush().Sets {
				if err := dp.applySet(id, c); err != nil {
					t.Fatal(err)
				}
			}
			checkSpending(t, g)
		}
	}
}

// drawRelieved is a change of a pod that runs as the ServiceAccount, of that, or of a policy with selectors on its labels or those of pods.
func drawRelieved(t *rapid.T) model.Update {
	i := rapid.IntRange(0, 7).Draw(t, "number")
	switch rapid.IntRange(0, 3).Draw(t, "what") {
	case 0:
		u := pod(fmt.Sprint("other/p", i), fmt.Sprintf("10.1.0.%d fd00::%d", i, i), on("node-2"), profiles("kns.other", "ksa.other.a"), port("http", model.ProtoTCP, uint16(80+i)))
		for k := range rapid.IntRange(0, 3).Draw(t, "more") {
			u.Endpoint.Addrs = append(u.Endpoint.Addrs, addrs(fmt.Sprintf("10.2.%d.%d", i, k))...)
			u.Endpoint.Ports = append(u.Endpoint.Ports, model.NamedPort{Name: "http", Protocol: model.ProtoTCP, Port: uint16(90 + k)})
		}
		for k := range rapid.IntRange(0, 3).Draw(t, "labels") {
			u.Endpoint.Labels[fmt.Sprint("pcsa.x", k)] = "on"
		}
		if rapid.IntRange(0, 4).Draw(t, "gone") == 0 {
			return model.Absent(u)
		}
		return u
	case 1:
		return account(rapid.IntRange(0, 4).Draw(t, "labels"))
	}
	p := byLabels(rapid.SampledFrom([]string{"evil", "shop"}).Draw(t, "namespace"), rapid.SampledFrom([]string{"p", "q"}).Draw(t, "name"), i%4, 1+i/3)
	if i%2 == 0 {
		p.Policy.Ingress[0].Destination = model.Entity{NamedPorts: []string{"http"}, Selector: p.Policy.Ingress[0].Source.Selector}
	}
	if rapid.IntRange(0, 4).Draw(t, "gone") == 0 {
		return model.Absent(p)
	}
	return p
}
