package calc

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/pkg/model"
)

// shape lists tiers and policies of a direction: "default(Deny): gnp/a gnp/b*" where * is staged.
func shape(d *model.DirectionPolicy) []string {
	var out []string
	for _, t := range d.Tiers {
		line := fmt.Sprintf("%s(%s):", t.Name, t.Default)
		for _, p := range t.Policies {
			line += " " + p.Key.String()
			if p.Staged {
				line += "*"
			}
		}
		out = append(out, line)
	}
	for _, p := range d.Profiles {
		out = append(out, p.Key.String())
	}
	return out
}

func inTier(name, tier string, order float64) model.PolicyUpdate {
	p := policyOf(name, "all()", model.Rule{Action: model.Pass})
	p.Policy.Tier, p.Policy.Order = tier, order
	return p
}

func userTier(name string, order float64, end model.Action) model.TierUpdate {
	return model.TierUpdate{Name: name, Tier: &model.Tier{Order: order, Default: end}}
}

func TestTiersAndPoliciesAreInEvaluationOrder(t *testing.T) {
	knp := policyOf("b", "all()")
	knp.Key = model.PolicyKey{Kind: model.KindKubernetesNetworkPolicy, Namespace: "shop", Name: "b"}
	r := newRig(t, pod("shop/web", "10.0.0.1"), namespace("shop"),
		inTier("a1", "unknown-b", 1), inTier("a2", "unknown-a", 9),
		inTier("b1", model.TierKubeBaseline, 1), inTier("b2", model.TierKubeAdmin, 1),
		inTier("c1", "platform", 1), inTier("c2", "security", 1), inTier("c3", "last", 1),
		userTier("platform", 500, model.Deny), userTier("security", 500, model.Pass), userTier("last", model.NoOrder, model.Deny),
		inTier("late", model.TierDefault, model.NoOrder), inTier("b", model.TierDefault, 10), knp,
		inTier("a", model.TierDefault, 10), inTier("first", model.TierDefault, -1),
	)
	want := []string{
		"platform(Deny): gnp/c1", "security(Pass): gnp/c2", "kube-admin(Pass): gnp/b2",
		"default(Deny): gnp/first gnp/a gnp/b knp/shop/b gnp/late", "kube-baseline(Pass): gnp/b1",
		"last(Deny): gnp/c3", "unknown-a(Deny): gnp/a2", "unknown-b(Deny): gnp/a1", "profile/kns.shop",
	}
	if diff := cmp.Diff(want, shape(r.endpoint("shop/web").Ingress)); diff != "" {
		t.Error(diff)
	}
	if got := shape(r.endpoint("shop/web").Egress); !slices.Equal(got, []string{"profile/kns.shop"}) {
		t.Errorf("egress is %v", got)
	}
}

func TestTierUpdatesReorderButBuiltinTiersStay(t *testing.T) {
	r := newRig(t, pod("shop/web", "10.0.0.1"), inTier("d", model.TierDefault, 1), inTier("s", "security", 1))
	got := func() []string { return shape(r.endpoint("shop/web").Ingress) }
	steps := []struct {
		update  model.Update
		want    []string
		changed bool
	}{
		{userTier("security", 1, model.Pass), []string{"security(Pass): gnp/s", "default(Deny): gnp/d"}, true},
		{userTier("security", 2, model.Pass), []string{"security(Pass): gnp/s", "default(Deny): gnp/d"}, false},
		{userTier("security", 2, model.Allow), []string{"security(Deny): gnp/s", "default(Deny): gnp/d"}, true},
		{userTier("security", 2e6, model.Deny), []string{"default(Deny): gnp/d", "security(Deny): gnp/s"}, true},
		{userTier(model.TierDefault, 3e6, model.Pass), []string{"default(Deny): gnp/d", "security(Deny): gnp/s"}, false},
		{model.TierUpdate{Name: model.TierDefault}, []string{"default(Deny): gnp/d", "security(Deny): gnp/s"}, false},
		{model.TierUpdate{Name: "security"}, []string{"default(Deny): gnp/d", "security(Deny): gnp/s"}, false},
	}
	for i, s := range steps {
		c := r.apply(s.update)
		if diff := cmp.Diff(s.want, got()); diff != "" {
			t.Errorf("step %d: %s", i, diff)
		}
		if (len(c.Endpoints) > 0) != s.changed {
			t.Errorf("step %d: changes %v", i, c.Endpoints)
		}
	}
}

func TestStagedPoliciesStayInTheList(t *testing.T) {
	p := inTier("p", model.TierDefault, 1)
	p.Policy.Staged = true
	r := newRig(t, pod("shop/web", "10.0.0.1"), p)
	if got := shape(r.endpoint("shop/web").Ingress); !slices.Equal(got, []string{"default(Deny): gnp/p*"}) {
		t.Errorf("got %v", got)
	}
}

func TestUnmatchableRuleIsKeptWithoutSets(t *testing.T) {
	rule := fromSelector("app == 'db'")
	rule.Unmatchable, rule.Index = "http is not enforced", 3
	r := newRig(t, pod("shop/web", "10.0.0.1"), policyOf("p", "all()", rule))
	want := []model.MatchRule{{Action: model.Allow, Index: 3, Unmatchable: "http is not enforced"}}
	if diff := cmp.Diff(want, r.endpoint("shop/web").Ingress.Tiers[0].Policies[0].Rules, byValue); diff != "" {
		t.Error(diff)
	}
	if len(r.sets()) != 0 {
		t.Errorf("sets %v", r.sets())
	}
}

func TestProfilesApplyInOrderWhileTheyExist(t *testing.T) {
	labelsOnly := model.ProfileUpdate{Name: "ksa.shop.x", Profile: &model.Profile{Labels: map[string]string{"pcsa.a": "b"}}}
	r := newRig(t, pod("shop/web", "10.0.0.1", profiles("kns.b", "absent", "ksa.shop.x", "kns.a")), labelsOnly,
		namespace("a"), namespace("b"), namespace("c"))
	if got := shape(r.endpoint("shop/web").Egress); !slices.Equal(got, []string{"profile/kns.b", "profile/kns.a"}) {
		t.Errorf("got %v", got)
	}
	quiet := namespace("a")
	quiet.Profile.Egress = nil
	r.apply(quiet, model.ProfileUpdate{Name: "kns.b"})
	ep := r.endpoint("shop/web")
	if in, out := shape(ep.Ingress), shape(ep.Egress); !slices.Equal(in, []string{"profile/kns.a"}) || len(out) != 0 {
		t.Errorf("ingress %v, egress %v", in, out)
	}
}

// What is equal is shared, and what does not change keeps its pointer.
func TestPointersAreSharedAndStable(t *testing.T) {
	web := func(name, addr string) model.EndpointUpdate {
		return pod(name, addr, label("app", "web"), label("pod", name))
	}
	p := policyOf("p", "app == 'web'", fromSelector("app == 'db'"))
	r := newRig(t, namespace("shop"), web("shop/1", "10.0.0.1"), web("shop/2", "10.0.0.2"), pod("shop/other", "10.0.0.3"), p)
	one, two, other := r.endpoint("shop/1"), r.endpoint("shop/2"), r.endpoint("shop/other")
	if one.Ingress != two.Ingress || one.Egress != two.Egress || one.Egress != other.Egress || one.Ingress == other.Ingress {
		t.Error("equal directions must share a pointer, and only they")
	}

	again := policyOf("p", "app == 'web'", fromSelector("app == 'db'"))
	again.Policy.Egress = []model.Rule{} // means the same
	if c := r.apply(again, web("shop/1", "10.0.0.1"), namespace("shop")); len(c.Endpoints)+len(c.Sets) != 0 {
		t.Errorf("an update that changes nothing causes %+v", c)
	}
	relabelled := pod("shop/2", "10.0.0.2", label("app", "web"), label("pod", "renamed"))
	if c := r.apply(relabelled); len(c.Endpoints) != 0 {
		t.Errorf("a label nobody asks for causes %+v", c)
	}
	c := r.apply(web("shop/1", "10.0.0.9"))
	if got := c.Endpoints[id("shop/1")]; len(c.Endpoints) != 1 || got.Ingress != one.Ingress || got.Egress != one.Egress {
		t.Errorf("only the address changed: %+v", c)
	}
	c = r.apply(policyOf("p", "app == 'web'", fromSelector("app == 'cache'")))
	if len(c.Endpoints) != 2 || c.Endpoints[id("shop/1")].Ingress != c.Endpoints[id("shop/2")].Ingress {
		t.Errorf("a policy changed: %+v", c)
	}
	if c.Endpoints[id("shop/1")].Egress != one.Egress || r.endpoint("shop/other") != other {
		t.Error("what the policy does not concern changed")
	}
	swapped := r.apply(pod("shop/1", "10.0.0.9"), pod("shop/other", "10.0.0.3", label("app", "web")))
	if swapped.Endpoints[id("shop/1")].Ingress != other.Ingress || swapped.Endpoints[id("shop/other")].Ingress != r.endpoint("shop/2").Ingress {
		t.Error("endpoints that swap policies must swap pointers")
	}
}

func TestClaimThatLostIsAProblem(t *testing.T) {
	r := newRig(t, pod("shop/b", "10.0.0.2", created(1)), pod("shop/a", "10.0.0.2", created(2)),
		pod("shop/far", "10.0.0.2", on("node-2"), created(3)), pod("shop/leaving", "10.0.0.2", terminating),
		pod("shop/far-2", "10.0.1.5", on("node-2")), pod("shop/far-3", "10.0.1.5", on("node-2")))
	var got []Problem
	for _, p := range r.graph.Problems() {
		if p.Kind == AddressLost {
			got = append(got, p)
		}
	}
	want := []Problem{
		{AddressLost, id("shop/a"), model.PolicyKey{}, "shop", "endpoint shop/a", "address 10.0.0.2 belongs to endpoint shop/b; packets that it sends from this address are dropped as spoofed"},
		{AddressLost, id("shop/far"), model.PolicyKey{}, "shop", "endpoint shop/far", "address 10.0.0.2 belongs to endpoint shop/b; packets that it sends from this address are dropped as spoofed"},
		{AddressLost, id("shop/far-2"), model.PolicyKey{}, "shop", "endpoint shop/far-2", "address 10.0.1.5 is claimed by another endpoint of the same age: neither owns it"},
		{AddressLost, id("shop/far-3"), model.PolicyKey{}, "shop", "endpoint shop/far-3", "address 10.0.1.5 is claimed by another endpoint of the same age: neither owns it"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestOldestEndpointHasAnInterface(t *testing.T) {
	r := newRig(t, pod("shop/b", "10.0.0.2", iface("cali1"), created(2)), pod("shop/none", "10.0.0.4", iface("")),
		pod("shop/far", "10.0.1.5", iface("cali1"), on("node-2")))
	local := func() []string {
		var names []string
		for _, ep := range r.graph.LocalEndpoints() {
			names = append(names, ep.ID.Name)
		}
		return names
	}
	if got := local(); !slices.Equal(got, []string{"b"}) {
		t.Errorf("got %v", got)
	}
	if c := r.apply(pod("shop/a", "10.0.0.1", iface("cali1"), created(3))); len(c.Endpoints) != 0 {
		t.Errorf("a younger one came: %v, local %v", c.Endpoints, local())
	}
	c := r.apply(pod("shop/c", "10.0.0.3", iface("cali1"), created(1)))
	if ep, left := c.Endpoints[id("shop/b")]; !left || ep != nil || !slices.Equal(local(), []string{"c"}) {
		t.Errorf("an older one came: %v, local %v", c.Endpoints, local())
	}
	want := []Problem{
		{InterfaceTaken, id("shop/a"), model.PolicyKey{}, "shop", "endpoint shop/a", "interface cali1 belongs to shop/c, which is older: not enforced"},
		{InterfaceTaken, id("shop/b"), model.PolicyKey{}, "shop", "endpoint shop/b", "interface cali1 belongs to shop/c, which is older: not enforced"},
		{MissingNamespace, id("shop/c"), model.PolicyKey{}, "shop", "endpoint shop/c", "Namespace shop does not exist: traffic that no policy decides is denied"},
		{InterfaceTaken, id("shop/none"), model.PolicyKey{}, "shop", "endpoint shop/none", "it has no interface: not enforced"},
		{MissingTier, model.EndpointID{}, model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "p"}, "", "policy gnp/p", `tier "x" does not exist: evaluated after all other tiers, with default action Deny`},
	}
	r.apply(inTier("p", "x", 1))
	if diff := cmp.Diff(want, r.graph.Problems()); diff != "" {
		t.Error(diff)
	}
	r.apply(model.EndpointUpdate{ID: id("shop/c")})
	if got := local(); !slices.Equal(got, []string{"b"}) {
		t.Errorf("the oldest left: %v", got)
	}
	r.apply(pod("shop/d", "10.0.0.5", iface("cali1"), created(2)))
	if got := local(); len(got) != 0 {
		t.Errorf("two are as old: %v", got)
	}
}

func TestWithoutANodeEveryEndpointIsLocal(t *testing.T) {
	w := newWorld(pod("shop/a", "10.0.0.1", iface("")), pod("shop/b", "10.0.1.1", on("node-2"), iface("cali1")),
		pod("shop/c", "10.0.2.1", on("node-3"), iface("cali1")), policyOf("p", "all()"))
	if got := fresh(t, "", w); len(got.Endpoints) != 3 {
		t.Errorf("%d local endpoints", len(got.Endpoints))
	}
}

func TestNothingBeforeTheFirstFullSnapshot(t *testing.T) {
	g := New(thisNode)
	g.Apply([]model.Update{pod("shop/web", "10.0.0.1")})
	if c := g.Flush(); !reflect.DeepEqual(c, model.Changes{}) {
		t.Errorf("before: %+v", c)
	}
	g.Apply([]model.Update{model.InSync{}})
	if c := g.Flush(); !c.InSync || len(c.Endpoints) != 1 || len(c.Sets) != 2 {
		t.Errorf("first: %+v", c)
	}
	if c := g.Flush(); !c.InSync || len(c.Endpoints)+len(c.Sets) != 0 {
		t.Errorf("after: %+v", c)
	}
}

func TestViewsKnowEndpointsOfEveryNode(t *testing.T) {
	remote := pod("shop/far", "10.0.1.5 fd00::5", on("node-2"), label("app", "db"), port("sql", model.ProtoTCP, 5432))
	r := newRig(t, remote, pod("shop/near", "10.0.1.5", on("node-3"), created(9)), pod("shop/web", "10.0.0.1"))
	got, ok := r.graph.FindEndpoint(id("shop/far"))
	remote.Endpoint.Iface = ""
	if diff := cmp.Diff(remote.Endpoint, got, byValue); !ok || diff != "" {
		t.Error(diff)
	}
	if _, ok := r.graph.FindEndpoint(id("shop/nobody")); ok {
		t.Error("found nobody")
	}
	if owner, ok := r.graph.EndpointByAddr(netip.MustParseAddr("10.0.1.5")); !ok || owner != id("shop/far") {
		t.Errorf("10.0.1.5 is %v, %v", owner, ok)
	}
	if owner, ok := r.graph.EndpointByAddr(netip.MustParseAddr("10.9.9.9")); ok {
		t.Errorf("10.9.9.9 is %v", owner)
	}
}
