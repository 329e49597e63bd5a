package calc

import (
	"fmt"
	"net/netip"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

func drawWorld(t *rapid.T, g *Graph) world {
	w := world{}
	for _, u := range rapid.SliceOfN(anyUpdate(), 1, 40).Draw(t, "updates") {
		w.set(u)
	}
	g.Apply(append(w.updates(), model.InSync{}))
	g.Flush()
	return w
}

func everywhere(updates []model.Update) *Graph {
	g := newGraph("")
	g.Apply(append(updates, model.InSync{}))
	g.Flush()
	return g
}

// owned is the world with the addresses that endpoints own in place of those they claim: only the graph of a node knows
// its routes.
func owned(g *Graph, w world) []model.Update {
	var all []model.Update
	for _, u := range w.updates() {
		switch u := u.(type) {
		case model.EndpointUpdate:
			found, _ := g.FindEndpoint(u.ID)
			ep := *u.Endpoint
			ep.Addrs, ep.Unconfirmed = found.Addrs, false
			ep.Sources = nil // of no concern to a judgement
			all = append(all, model.EndpointUpdate{ID: u.ID, Endpoint: &ep})
		case model.RoutesUpdate:
		default:
			all = append(all, u)
		}
	}
	return all
}

// The part of the datastore around two ends must say of them what the whole of it says.
func TestAroundSaysWhatTheWholeSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := newGraph(thisNode)
		w := drawWorld(t, g)
		ids := []model.EndpointID{drawEndpoint(t).ID, drawEndpoint(t).ID}[:rapid.IntRange(0, 2).Draw(t, "named")]
		addrs := []netip.Addr{drawAddr().Draw(t, "addr")}
		whole, part := everywhere(owned(g, w)), everywhere(g.Around(ids, addrs).Objects())
		concerned := map[model.EndpointID]bool{}
		for _, id := range ids {
			ep, found := whole.FindEndpoint(id)
			if _, ok := part.FindEndpoint(id); ok != found {
				t.Fatalf("%s is %v, want %v", id, ok, found)
			}
			if concerned[id] = found; found {
				addrs = append(addrs, ep.Addrs...)
			}
		}
		for _, a := range addrs {
			id, found := whole.EndpointByAddr(a)
			if got, ok := part.EndpointByAddr(a); ok != found || got != id {
				t.Fatalf("%s is of %s, %v, want %s, %v", a, got, ok, id, found)
			}
			concerned[id] = concerned[id] || found
		}
		for id, found := range concerned {
			if found {
				sameJudgement(t, whole, part, id, addrs)
			}
		}
	})
}

func sameJudgement(t *rapid.T, whole, part *Graph, id model.EndpointID, addrs []netip.Addr) {
	one, _ := whole.LocalEndpoint(id)
	other, _ := part.LocalEndpoint(id)
	want, got := *one, *other
	want.Iface, got.Iface = "", "" // not kept of endpoints of other nodes
	got.Sources = nil              // not in the whole, see owned
	if !reflect.DeepEqual(want, got) {
		t.Fatalf("policy of %s (-whole +part):\n%s", id, cmp.Diff(want, got, byValue))
	}
	for _, d := range []*model.DirectionPolicy{want.Ingress, want.Egress} {
		for _, rules := range allRules(d) {
			for i := range rules.Rules {
				for _, set := range setsOf(&rules.Rules[i]) {
					for _, a := range addrs {
						if in := whole.SetContains(set, a); part.SetContains(set, a) != in {
							t.Fatalf("%s in %s: want %v", a, set, in)
						}
					}
				}
			}
		}
	}
}

// A sample must hold a like of every endpoint, and the same rules in force.
func TestSampleHasALikeOfEveryEndpoint(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := newGraph(thisNode)
		w := drawWorld(t, g)
		whole, part := everywhere(owned(g, w)), everywhere(sampleOf(g))
		for _, want := range whole.LocalEndpoints() {
			found := false
			for _, got := range part.LocalEndpoints() {
				found = found || reflect.DeepEqual([]any{want.Ingress, want.Egress}, []any{got.Ingress, got.Egress})
			}
			if !found {
				t.Fatalf("no like of %s", want.ID)
			}
		}
		for id, s := range whole.sets.byID {
			if of := part.sets.byID[id]; of == nil || of.isEmpty() != s.isEmpty() {
				t.Fatalf("set %s: %v, want %v", id, of, s)
			}
		}
	})
}

func TestSampleTakesOneOfManyAlike(t *testing.T) {
	g := newGraph(thisNode)
	to := func(nets, not []netip.Prefix) model.Rule {
		return model.Rule{Action: model.Allow, Destination: model.Entity{Nets: nets, NotNets: not}}
	}
	g.Apply([]model.Update{
		pod("a/p1", "10.0.0.1", on("n2")), pod("a/p2", "10.0.0.2", on("n3")), pod("a/p3", "10.0.0.3", on("n3")),
		pod("a/p4", "10.0.0.4 fd00::4"), pod("a/p5", "10.0.0.5", label("app", "db")), pod("a/p6", "10.0.0.6", label("version", "2")),
		pod("a/p7", "10.0.0.7"), namespace("a"), namespace("b"),
		policyOf("x", "all()", to(nets("10.0.0.3/32"), nets("10.0.0.7/32")), fromSelector("app == 'db'")), model.InSync{},
	})
	g.Flush()
	n := map[string]int{}
	for _, u := range sampleOf(g) {
		switch u := u.(type) {
		case model.EndpointUpdate:
			n["endpoints"]++
			if u.ID == id("a/p3") {
				n["the one that the rule tells apart"]++
			}
		case model.ProfileUpdate:
			n["profiles"]++
		}
	}
	want := map[string]int{"endpoints": 5, "the one that the rule tells apart": 1, "profiles": 1}
	if diff := cmp.Diff(want, n); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRestateSaysEverythingAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := newGraph(thisNode)
		w := drawWorld(t, g)
		before := g.LocalEndpoints()
		g.Restate()
		more := rapid.SliceOfN(anyUpdate(), 0, 5).Draw(t, "more")
		for _, u := range more {
			w.set(u)
		}
		g.Apply(more)
		dp := newDataplane()
		if err := dp.apply(g.Flush()); err != nil {
			t.Fatalf("illegal changes: %v", err)
		}
		requireSame(t, fresh(t, g.node, w), dp)
		if c := g.Flush(); len(c.Endpoints)+len(c.Sets) != 0 {
			t.Fatalf("said a third time: %+v", c)
		}
		for _, ep := range before {
			now := dp.Endpoints[ep.ID]
			if len(more) == 0 && now != ep {
				t.Fatalf("endpoint %s has another pointer", ep.ID)
			}
		}
	})
}

// What is applied before the first InSync is taken in at once and leaves nothing behind that is not there at the end.
func TestFlushesBeforeInSyncMakeNoDifference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, w := newGraph(thisNode), world{}
		for range rapid.IntRange(1, 6).Draw(t, "batches") {
			batch := rapid.SliceOfN(anyUpdate(), 1, 12).Draw(t, "batch")
			for _, u := range batch {
				w.set(u)
			}
			g.Apply(batch)
			if c := g.Flush(); c.InSync || len(c.Endpoints)+len(c.Sets) != 0 || len(g.LocalEndpoints()) != 0 {
				t.Fatalf("changes before the first full snapshot: %+v", c)
			}
			if n := len(g.pending.endpoints) + len(g.pending.profiles) + len(g.pending.networkSets); n != 0 {
				t.Fatalf("%d updates are kept", n)
			}
		}
		g.Apply([]model.Update{model.InSync{}})
		dp := newDataplane()
		if err := dp.apply(g.Flush()); err != nil {
			t.Fatalf("illegal changes: %v", err)
		}
		requireSame(t, fresh(t, g.node, w), dp)
	})
}

// What is left out for want of room is left out of a part of the datastore, too, where there would be room for it.
func TestAPartLeavesOutWhatTheWholeLeavesOut(t *testing.T) {
	g, dp := New(thisNode, WithRoom(1)), newDataplane()
	deny := policyOf("found", "projectcalico.org/namespace == 'shop'", model.Rule{Action: model.Deny, Source: model.Entity{Selector: sel("found == 'yes'")}})
	flushed(t, g, dp, pod("shop/a", "10.0.0.1"), toService(model.Deny, "evil/s"), deny, model.InSync{},
		backendsOf("evil/s", "s", 20, 3, 2), found("evil", "n", "yes", 3, 1))
	for _, addr := range []string{"20.0.0.1", "20.77.0.1", "100.77.0.1"} {
		part := everywhere(g.Around([]model.EndpointID{id("shop/a")}, addrs(addr)).Objects())
		for _, d := range []model.Direction{model.Ingress, model.Egress} {
			want, got := rulesOf(t, g, "shop/a", d), rulesOf(t, part, "shop/a", d)
			if fmt.Sprint(want) != fmt.Sprint(got) {
				t.Errorf("%s: rules of the part %q, want %q", addr, got, want)
			}
		}
	}
	for _, u := range sampleOf(g) {
		if s, is := u.(model.EndpointSliceUpdate); is && !s.Slice.LeftOut {
			t.Error("an EndpointSlice of the sample is not left out")
		}
	}
}

// A name means the same numbers in a part, also where rules only exclude it.
func TestAPartHasTheNumbersOfPortsThatRulesExclude(t *testing.T) {
	all := sel("all()")
	g, dp := New(thisNode), newDataplane()
	flushed(t, g, dp, pod("shop/a", "10.0.0.1", port("web", model.ProtoTCP, 80)), pod("shop/b", "10.0.0.2", port("web", model.ProtoTCP, 8080)), model.InSync{},
		policyOf("not-web", "all()", model.Rule{Action: model.Allow, Protocol: tcp(), Destination: model.Entity{Selector: all, NotNamedPorts: []string{"web"}}}))
	part := everywhere(g.Around([]model.EndpointID{id("shop/a")}, addrs("192.0.2.1")).Objects())
	if want, got := rulesOf(t, g, "shop/a", model.Ingress), rulesOf(t, part, "shop/a", model.Ingress); fmt.Sprint(want) != fmt.Sprint(got) {
		t.Errorf("rules of the part %q, want %q", got, want)
	}
}

func sampleOf(g *Graph) []model.Update {
	part, _ := g.Sample()
	return part.Objects()
}

// The agent's loop waits for a sample. A tenant's policies with very many rules are left out, and those of others are not.
func TestASampleLeavesOutWhatTakesLong(t *testing.T) {
	g := New("n1")
	long := make([]model.Rule, 1<<15)
	for i := range long {
		addr := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		long[i] = model.Rule{Action: model.Allow, Index: i, Source: model.Entity{Nets: []netip.Prefix{netip.PrefixFrom(addr, 32)}}}
	}
	policy := func(namespace string, n int, rules []model.Rule) model.PolicyUpdate {
		return model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindKubernetesNetworkPolicy, Namespace: namespace, Name: fmt.Sprint("p", n)},
			Policy: &model.Policy{Tier: model.TierDefault, Selector: selector.All(), AppliesIngress: true, Ingress: rules}}
	}
	const many = 16
	for i := range many {
		g.Apply([]model.Update{policy("evil", i, long), policy("shop", i, long[:10])})
	}
	g.Apply([]model.Update{model.InSync{}})
	g.Flush()
	part, leftOut := g.Sample()
	size := func(namespace string) int { return g.policies.Get(policy(namespace, 0, nil).Key).source.size() }
	fits := (mostSampled - many*size("shop")) / size("evil")
	has := map[string]int{}
	for _, u := range part.Objects() {
		if p, ok := u.(model.PolicyUpdate); ok {
			has[p.Key.Namespace]++
		}
	}
	if has["shop"] != many || has["evil"] != fits || len(leftOut) != many-fits || fits == many {
		t.Errorf("the sample has policies %v, and leaves out %d; want %d large ones of %d", has, len(leftOut), fits, many)
	}
}
