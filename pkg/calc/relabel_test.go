package calc

import (
	"fmt"
	"maps"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/pkg/model"
)

// labelNames are the names of all labels that the updates of drawInheriting give.
var labelNames = []string{"app", "role", "pcns.env", "pcns.team", "pcsa.role", "pcsa.env"}

// drawInheriting is a change of what inherits labels, of what it inherits them from, or of policies that it is about.
func drawInheriting(t *rapid.T) model.Update {
	switch rapid.IntRange(0, 9).Draw(t, "object") {
	case 0, 1, 2:
		u := drawEndpoint(t)
		u.Endpoint.Labels = drawLabels(t, "app", "pcsa.role")
		u.Endpoint.Profiles = oneOf(t, "profiles", []string{"kns.a", "ksa.a.x"}, []string{"kns.a", "ksa.a.x"}, []string{"ksa.a.x", "kns.b"}, []string{"kns.b"})
		u.ID.Name, u.Endpoint.Iface = oneOf(t, "pod", "p1", "p2", "p3", "p4", "p5"), oneOf(t, "interface", "cali1", "cali2", "cali3", "cali4", "cali5", "cali6")
		return u
	case 3, 4, 5:
		p := &model.Profile{Labels: drawLabels(t, "pcns.env", "pcns.team", "pcsa.role", "pcsa.env", "app")}
		if rapid.IntRange(0, 3).Draw(t, "rules") == 0 {
			p.Ingress, p.Egress = drawRules(t), drawRules(t)
		}
		return model.ProfileUpdate{Name: oneOf(t, "profile", "kns.a", "kns.b", "ksa.a.x"), Profile: p}
	case 6:
		return model.NetworkSetUpdate{ID: model.NetworkSetID{Namespace: "a", Name: oneOf(t, "network set", "n1", "n2")}, Set: &model.NetworkSet{
			Nets: rapid.SliceOfN(drawNet(), 0, 1).Draw(t, "nets"), Labels: drawLabels(t, "role"), Profiles: []string{"kns.a"}}}
	}
	u := drawPolicy(t)
	u.Key.Namespace = oneOf(t, "namespace", "a", "b", "")
	u.Policy.Selector = sel(drawInherited(t))
	for _, rules := range [][]model.Rule{u.Policy.Ingress, u.Policy.Egress} {
		for i := range rules {
			if rules[i].Source.Selector != nil {
				rules[i].Source.Selector = sel(drawInherited(t))
			}
		}
	}
	return u
}

func drawInherited(t *rapid.T) string {
	return oneOf(t, "selector", "all()", "pcns.env == 'prod'", "pcsa.role == 'web'", "has(pcsa.role) && pcns.env != 'prod'", "!has(pcsa.env)",
		"app == 'web' || pcns.team == 'blue'", "pcsa.env in {'prod', 'x'} && pcsa.role != 'db'")
}

// labelsOf are all labels of a group, by which selectors find it.
func labelsOf(gr interface{ Get(string) (string, bool) }) map[string]string {
	labels := map[string]string{}
	for _, name := range labelNames {
		if v, ok := gr.Get(name); ok {
			labels[name] = v
		}
	}
	return labels
}

// relabelled is the world in which each endpoint and network set has the labels of its own that it has in the graph, and inherits none.
func relabelled(g *Graph, w world) world {
	out := world{}
	for _, u := range w {
		switch was := u.(type) {
		case model.EndpointUpdate:
			ep := *was.Endpoint
			ep.Labels = labelsOf(g.endpoints.Get(was.ID).Group())
			u = model.EndpointUpdate{ID: was.ID, Endpoint: &ep}
		case model.NetworkSetUpdate:
			ns := *was.Set
			ns.Labels = labelsOf(g.networkSets[was.ID].Group())
			u = model.NetworkSetUpdate{ID: was.ID, Set: &ns}
		case model.ProfileUpdate:
			p := *was.Profile
			p.Labels = nil
			u = model.ProfileUpdate{Name: was.Name, Profile: &p}
		}
		out.set(u)
	}
	return out
}

// inheritedLabels are those that an object has if it inherits the present ones of all its parents.
func inheritedLabels(w world, own map[string]string, parents []string) map[string]string {
	labels := map[string]string{}
	for name, v := range own {
		labels[name] = v
	}
	for _, parent := range parents {
		u, ok := w["profile "+parent].(model.ProfileUpdate)
		if !ok {
			continue
		}
		for name, v := range u.Profile.Labels {
			if _, has := labels[name]; !has {
				labels[name] = v
			}
		}
	}
	return labels
}

// relabelRig is a graph that changes inherited labels in parts, with what it has been given.
type relabelRig struct {
	*rapid.T
	g     *Graph
	dp    *dataplane
	all   world // what it has been given
	force world // the same without policies that wait
	was   map[string]map[string]string
	most  int
}

func (r *relabelRig) put(u model.Update) {
	r.all.set(u)
	r.g.Apply([]model.Update{u})
	if _, is := u.(model.PolicyUpdate); !is {
		r.force.set(u)
	}
}

// flush flushes once. Each object has all of the labels that it had before or all of the present ones, and policies apply and sets have members
// just as these labels say.
func (r *relabelRig) flush() {
	r.Helper()
	waited := r.g.pending.policies
	counted := r.g.sets.counted
	quiet := len(r.g.pending.endpoints)+len(r.g.pending.profiles)+len(r.g.pending.networkSets)+len(r.g.pending.policies) == 0
	if err := r.dp.apply(r.g.Flush()); err != nil {
		r.Fatalf("illegal changes: %v", err)
	}
	// An object has 2 addresses or 3 prefixes, in the sets of at most 7 selectors, with and without ports, that lose and that get it.
	if n := r.g.sets.counted - counted; quiet && n > r.most+100 {
		r.Fatalf("%d addresses are counted in one flush, want %d", n, r.most)
	}
	postponed := map[model.PolicyKey]*model.Policy{}
	for _, key := range r.g.Postponed() {
		postponed[key] = r.g.pending.policies[key]
	}
	if !maps.Equal(postponed, r.g.pending.policies) {
		r.Fatalf("postponed are %v, and %v wait", postponed, r.g.pending.policies)
	}
	for key, p := range waited {
		if _, waits := r.g.pending.policies[key]; !waits {
			r.force.set(model.PolicyUpdate{Key: key, Policy: p})
		} else if !r.g.Turning()[key.Namespace] {
			r.Fatalf("policy %s waits for nothing", key)
		}
	}
	requireSame(r, fresh(r, thisNode, relabelled(r.g, r.force)), r.dp)
	now := map[string]map[string]string{}
	check := func(key string, gr *group, own map[string]string, parents []string) {
		now[key] = labelsOf(gr)
		want := inheritedLabels(r.all, own, parents)
		if got := fmt.Sprint(now[key]); got != fmt.Sprint(want) && (!gr.IsStale() || got != fmt.Sprint(r.was[key])) {
			r.Fatalf("%s has the labels %v, which are neither those of before, %v, nor the present ones, %v", key, got, r.was[key], want)
		}
	}
	for key, u := range r.all {
		switch u := u.(type) {
		case model.EndpointUpdate:
			check(key, r.g.endpoints.Get(u.ID).Group(), u.Endpoint.Labels, u.Endpoint.Profiles)
			if local := r.g.local.endpoints[u.ID]; local != nil && local.Group().IsStale() != r.g.endpoints.Get(u.ID).Group().IsStale() {
				r.Fatalf("%s: policies apply to labels of another time than those by which rules find it", key)
			}
		case model.NetworkSetUpdate:
			check(key, r.g.networkSets[u.ID].Group(), u.Set.Labels, u.Set.Profiles)
		}
	}
	r.was = now
}

// Whatever comes in between, inherited labels change object by object, as much as there is room for in a flush, and in the end all is as if it had
// changed at once.
func TestInheritedLabelsChangeInPartsAndNoPodIsBetween(t *testing.T) {
	parts := 0
	rapid.Check(t, func(t *rapid.T) {
		r := &relabelRig{T: t, g: newGraph(thisNode), dp: newDataplane(), all: world{}, force: world{}, most: rapid.IntRange(1, 12).Draw(t, "most")}
		r.g.InParts(r.most)
		for range rapid.IntRange(0, 30).Draw(t, "at first") {
			r.put(drawInheriting(t))
		}
		r.g.Apply([]model.Update{model.InSync{}})
		if r.flush(); len(r.g.Turning()) > 0 {
			t.Fatal("something is left for the flush after the first one")
		}
		for range rapid.IntRange(1, 15).Draw(t, "flushes") {
			for range rapid.IntRange(0, 4).Draw(t, "changes") {
				r.put(orAbsent(t, drawInheriting(t)))
			}
			if r.flush(); len(r.g.Turning()) > 0 {
				parts++
			}
			if rapid.IntRange(0, 7).Draw(t, "restate") == 0 {
				r.g.Restate()
				r.dp = newDataplane()
			}
		}
		for n := 0; n == 0 || len(r.g.Turning()) > 0; n++ {
			if r.flush(); n > 200 {
				t.Fatal("it does not end")
			}
		}
		requireSame(t, fresh(t, thisNode, r.all), r.dp)
		r.g.InParts(0)
		checkEmptied(t, r.g, r.dp, r.all)
	})
	if parts == 0 { // some 100 do
		t.Error("no flush has left something, so nothing was tested")
	}
}

// relabelledMarket is a graph with so many pods of one ServiceAccount elsewhere, each found by so many selectors once that has the label pcsa.x0.
func relabelledMarket(t *testing.T, pods, selectors, most int) (*Graph, *dataplane) {
	t.Helper()
	g, dp := New(thisNode), newDataplane()
	updates := []model.Update{account(0), pod("shop/a", "10.0.0.2"), namespace("other"), namespace("shop")}
	for i := range pods {
		u := pod("other/p", fmt.Sprintf("10.1.%d.%d", i>>8, i&255), on("node-2"), profiles("kns.other", "ksa.other.a"))
		u.ID.Name = fmt.Sprint("p", i)
		updates = append(updates, u)
	}
	for i := range selectors {
		p := byLabels("shop", fmt.Sprint("p", i), 0, 1)
		p.Policy.Ingress[0].Source.Selector = sel(fmt.Sprintf("pcsa.x0 == 'on' && app != 'x%d'", i))
		updates = append(updates, p)
	}
	g.InParts(most)
	flushed(t, g, dp, append(updates, model.InSync{})...)
	return g, dp
}

// added are the addresses that join sets with changes.
func added(c model.Changes) (all []netip.Addr) {
	for _, s := range c.Sets {
		for _, p := range s.Added {
			all = append(all, p.Addr())
		}
	}
	return all
}

// Pods get the labels of their ServiceAccount in the order of their addresses, on every node. A pod that comes meanwhile has them at once.
func TestPodsGetOtherLabelsInTheOrderOfTheirAddresses(t *testing.T) {
	const pods, selectors, most = 500, 4, 100
	g, _ := relabelledMarket(t, pods, selectors, most)
	g.Apply([]model.Update{account(1)})
	next := netip.MustParseAddr("10.1.0.0")
	for n := 0; n == 0 || len(g.Turning()) > 0; n++ {
		if n == 1 {
			late := pod("other/late", "10.200.0.1", on("node-2"), profiles("kns.other", "ksa.other.a"))
			g.Apply([]model.Update{late})
		}
		c := g.Flush()
		if n > pods*selectors/most*2 {
			t.Fatal("it does not end")
		}
		seen := map[netip.Addr]int{}
		for _, a := range added(c) {
			seen[a]++
		}
		if n == 1 && seen[netip.MustParseAddr("10.200.0.1")] != selectors {
			t.Error("a pod that comes has labels of before")
		}
		delete(seen, netip.MustParseAddr("10.200.0.1"))
		if len(seen)*selectors > most+selectors {
			t.Errorf("flush %d changes %d pods", n, len(seen))
		}
		for ; len(seen) > 0; next = next.Next() {
			if seen[next] != selectors {
				t.Fatalf("flush %d: of the selectors %d find %s, and it is its turn", n, seen[next], next)
			}
			delete(seen, next)
		}
	}
	if want := netip.MustParseAddr("10.1.1.244"); next != want {
		t.Errorf("the last one before %s has other labels, want %s", next, want)
	}
}

// Pods of the node itself are the first, whatever their addresses, and policies apply to them with the flush in which rules find them.
func TestPodsOfTheNodeGetOtherLabelsFirst(t *testing.T) {
	g, dp := relabelledMarket(t, 500, 4, 100)
	local := pod("other/local", "10.250.0.1", profiles("kns.other", "ksa.other.a"))
	p := policyOf("about", "pcsa.x0 == 'on'")
	flushed(t, g, dp, local, p)
	g.Apply([]model.Update{account(1)})
	c := g.Flush()
	n := 0
	for _, a := range added(c) {
		if a == local.Endpoint.Addrs[0] {
			n++
		}
	}
	if ep := c.Endpoints[local.ID]; n != 4 || ep == nil || len(ep.Ingress.Tiers) != 1 || ep.Ingress.Tiers[0].Policies[0].Key != p.Key {
		t.Errorf("%d selectors find it, and it has the policy %+v", n, ep)
	}
}

// A Namespace that comes after very many of its pods: one of this node is enforced with all that its labels decide, and not before.
func TestAPodThatAwaitsItsNamespaceIsEnforcedWithItsLabels(t *testing.T) {
	g, dp := New(thisNode, AwaitNamespaces()), newDataplane()
	p := policyOf("about", "pcns.x0 == 'on'", fromSelector("pcns.x0 == 'on'"))
	updates := []model.Update{pod("other/local", "10.250.0.1"), p, model.InSync{}}
	for i := range 500 {
		u := pod("other/p", fmt.Sprintf("10.1.%d.%d", i>>8, i&255), on("node-2"))
		u.ID.Name = fmt.Sprint("p", i)
		updates = append(updates, u)
	}
	g.InParts(100)
	flushed(t, g, dp, updates...)
	if n := len(g.LocalEndpoints()); n != 0 {
		t.Fatalf("%d pods are enforced without their Namespace", n)
	}
	flushed(t, g, dp, namespace("other", "x0", "on"))
	all := g.LocalEndpoints()
	if len(all) != 1 || len(all[0].Ingress.Tiers) != 1 || all[0].Ingress.Tiers[0].Policies[0].Key != p.Key {
		t.Errorf("enforced: %+v", all)
	}
	if len(g.Turning()) == 0 {
		t.Error("all pods have the labels at once, which does not test it")
	}
}

// While the pods of one tenant get other labels, those of another one with few pods get theirs in the next flush, and policies of the tenant itself
// wait until all of its pods have them.
func TestFewPodsDoNotWaitForVeryMany(t *testing.T) {
	g, dp := relabelledMarket(t, 500, 4, 100)
	few := pod("few/p", "10.3.0.1", on("node-2"), profiles("kns.few", "ksa.few.a"))
	flushed(t, g, dp, few, namespace("few"))
	flushed(t, g, dp, account(1))
	own := policyOf("own", "all()", fromSelector("pcsa.x0 == 'on'"))
	own.Key = model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: "other", Name: "own"}
	other := policyOf("q", "all()", fromSelector("pcsa.x0 == 'on' && app == 'none'"))
	other.Key = model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: "few", Name: "q"}
	p := account(1)
	p.Name = "ksa.few.a"
	flushed(t, g, dp, own, other, p)
	if turning := g.Turning(); len(turning) != 1 || !turning["other"] {
		t.Fatalf("turning: %v", turning)
	}
	applies := func(u model.PolicyUpdate) bool { _, is := g.PlaceOf(u.Key); return is }
	if applies(own) || !applies(other) {
		t.Errorf("the policy of the tenant is in force: %v, that of the other: %v", applies(own), applies(other))
	}
	for len(g.Turning()) > 0 {
		if applies(own) {
			t.Fatal("the policy does not wait for the labels it is about")
		}
		flushed(t, g, dp)
	}
	if !applies(own) {
		t.Error("the policy is lost")
	}
}
