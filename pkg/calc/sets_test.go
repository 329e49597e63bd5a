package calc

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/pkg/model"
)

func TestSelectorSetHoldsEndpointsOfTheClusterAndNetworkSets(t *testing.T) {
	r := newRig(t,
		namespace("shop", "env", "prod"),
		pod("shop/web", "10.0.0.1"),
		pod("shop/here", "10.0.0.2 fd00::2"),
		pod("shop/there", "10.0.1.3", on("node-2"), iface("")),
		pod("blog/other", "10.0.0.4"),
		model.NetworkSetUpdate{ID: model.NetworkSetID{Namespace: "shop", Name: "n"}, Set: &model.NetworkSet{
			Nets: nets("192.0.2.0/24", "10.0.0.2/32"), Profiles: []string{"kns.shop"}}},
		policyOf("p", "projectcalico.org/namespace == 'shop'", fromSelector("pcns.env == 'prod'")),
	)
	want := map[string]string{
		`selector all() in namespaces with env == "prod"`: "[10.0.0.1/32 10.0.0.2/32 10.0.1.3/32 192.0.2.0/24 fd00::2/128]",
	}
	if diff := cmp.Diff(want, r.sets()); diff != "" {
		t.Error(diff)
	}
}

func TestRulesWithEqualSelectorsShareASet(t *testing.T) {
	r := newRig(t, pod("shop/web", "10.0.0.1"),
		policyOf("p", "all()", fromSelector("a=='b'&&has(c)"), fromSelector(`( a == "b" ) && has(c)`)))
	rules := r.endpoint("shop/web").Ingress.Tiers[0].Policies[0].Rules
	if a, b := rules[0].Source.In[0], rules[1].Source.In[0]; a != b || !strings.HasPrefix(string(a), "s:") {
		t.Errorf("ids %q and %q", a, b)
	}
}

// A set exists while a rule of an active policy uses it.
func TestSetLeavesWithItsLastUser(t *testing.T) {
	web := pod("shop/web", "10.0.0.1", label("app", "web"))
	one, two := policyOf("one", "app == 'web'", fromSelector("all()")), policyOf("two", "app == 'web'", fromSelector("all()"))
	r := newRig(t, web, one, two)
	if got := len(r.sets()); got != 1 {
		t.Fatalf("%d sets of two equal rules", got)
	}
	if c := r.apply(model.Absent(one)); len(c.Sets) != 0 {
		t.Errorf("one user of two left: %v", c.Sets)
	}
	c := r.apply(pod("shop/web", "10.0.0.1"))
	if len(c.Sets) != 1 || len(r.sets()) != 0 {
		t.Errorf("no policy is active any more: %v", c.Sets)
	}
	if c := r.apply(web); len(c.Sets) != 1 || len(r.sets()) != 1 {
		t.Errorf("active again: %v", c.Sets)
	}
}

func TestAddressIsMemberAsLongAsOneEndpointHasIt(t *testing.T) {
	other := on("node-2")
	set := model.SetID("")
	r := newRig(t, pod("shop/web", "10.0.0.1"), policyOf("p", "all()", fromSelector("app == 'db'")))
	for id := range r.dp.Sets {
		if strings.HasPrefix(string(id), "s:") {
			set = id
		}
	}
	steps := []struct {
		name           string
		updates        []model.Update
		added, removed []netip.Prefix
	}{
		{"first", []model.Update{pod("a/1", "10.0.1.1", other, label("app", "db"))}, nets("10.0.1.1/32"), nil},
		{"second with the same address", []model.Update{pod("a/2", "10.0.1.1", other, label("app", "db"), created(2))}, nil, nil},
		{"first goes", []model.Update{model.EndpointUpdate{ID: id("a/1")}}, nil, nil},
		{"handed over in one batch", []model.Update{model.EndpointUpdate{ID: id("a/2")},
			pod("a/3", "10.0.1.1", other, label("app", "db"))}, nil, nil},
		{"gone and back in one batch", []model.Update{model.EndpointUpdate{ID: id("a/3")},
			pod("a/3", "10.0.1.1", other, label("app", "db"))}, nil, nil},
		{"another address", []model.Update{pod("a/3", "10.0.1.2", other, label("app", "db"))},
			nets("10.0.1.2/32"), nets("10.0.1.1/32")},
		{"old address to one that is no member", []model.Update{pod("a/4", "10.0.1.1", other)}, nil, nil},
		{"labels change", []model.Update{pod("a/3", "10.0.1.2", other)}, nil, nets("10.0.1.2/32")},
	}
	for _, s := range steps {
		c := r.apply(s.updates...)
		want := map[model.SetID]*model.SetChange(nil)
		if s.added != nil || s.removed != nil {
			want = map[model.SetID]*model.SetChange{set: {Added: s.added, Removed: s.removed}}
		}
		if diff := cmp.Diff(want, c.Sets, byValue); diff != "" {
			t.Errorf("%s: %s", s.name, diff)
		}
		if len(c.Endpoints) != 0 {
			t.Errorf("%s: members change, policies do not: %v", s.name, c.Endpoints)
		}
	}
}

func TestReservedSetsAreAnnouncedEmpty(t *testing.T) {
	c := newRig(t).dp.Sets
	for _, id := range []model.SetID{model.SetNodeAddrs, model.SetServiceAddrs} {
		if members, ok := c[id]; !ok || len(members) != 0 {
			t.Errorf("%s: %v, %v", id, members, ok)
		}
	}
}

func TestReservedSetsFollowServicesAndTheOwnNode(t *testing.T) {
	service := func(name string, texts ...string) model.ServiceUpdate {
		return model.ServiceUpdate{Key: model.ServiceKey{Namespace: "shop", Name: name}, Service: &model.Service{Cluster: addrs(texts...)}}
	}
	r := newRig(t, service("a", "10.96.0.1", "fd01::1"), service("b", "10.96.0.1"),
		model.NodeUpdate{Name: thisNode, Node: &model.Node{Addrs: addrs("172.16.0.1")}},
		model.NodeUpdate{Name: "node-2", Node: &model.Node{Addrs: addrs("172.16.0.2")}})
	check := func(id model.SetID, texts ...string) {
		t.Helper()
		if got, _ := r.graph.SetMembers(id); !slices.Equal(got, nets(texts...)) {
			t.Errorf("%s is %v, want %v", id, got, texts)
		}
	}
	check(model.SetServiceAddrs, "10.96.0.1/32", "fd01::1/128")
	check(model.SetNodeAddrs, "172.16.0.1/32")
	r.apply(model.Absent(service("a")), model.NodeUpdate{Name: thisNode})
	check(model.SetServiceAddrs, "10.96.0.1/32")
	check(model.SetNodeAddrs)
}

func TestSetContainsLooksInsidePrefixes(t *testing.T) {
	r := newRig(t, pod("shop/web", "10.0.0.1"), policyOf("p", "all()", fromSelector("has(n)")),
		model.NetworkSetUpdate{ID: model.NetworkSetID{Name: "n"}, Set: &model.NetworkSet{
			Nets: nets("192.0.2.7/24", "2001:db8::/32"), Labels: map[string]string{"n": ""}}})
	set := r.endpoint("shop/web").Ingress.Tiers[0].Policies[0].Rules[0].Source.In[0]
	for text, want := range map[string]bool{
		"192.0.2.200": true, "192.0.3.1": false, "2001:db8::1": true, "2001:db9::1": false, "10.0.0.1": false,
	} {
		if got := r.graph.SetContains(set, netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
	if r.graph.SetContains("s:nonsense", netip.MustParseAddr("192.0.2.200")) {
		t.Error("a set that does not exist contains something")
	}
}

// A network set that changes has the members of one that comes as it is then, whatever of its list is different.
func TestANetworkSetThatChangesIsLikeANewOne(t *testing.T) {
	lists := [][]string{
		{}, {"10.0.0.0/8"}, {"10.0.0.0/8", "11.0.0.1/32"}, {"11.0.0.1/32"}, {"10.0.0.0/8", "10.0.0.0/8", "11.0.0.1/32"},
		{"11.0.0.1/32", "10.0.0.0/8"}, {"10.9.9.9/8", "fd00::1/128"}, {"fd00::1/128", "10.0.0.0/8", "fd00::1/128"}, {"12.0.0.0/8", "11.0.0.1/32", "13.0.0.0/8"},
	}
	set := func(list []string, labels ...string) model.NetworkSetUpdate {
		u := model.NetworkSetUpdate{ID: model.NetworkSetID{Name: "n"}, Set: &model.NetworkSet{Nets: nets(list...), Labels: map[string]string{"set": "n"}}}
		for _, l := range labels {
			u.Set.Labels[l] = "x"
		}
		return u
	}
	r := newRig(t, pod("a/p", "10.0.0.1"), policyOf("p", "all()", fromSelector("set == 'n'")), policyOf("q", "all()", fromSelector("has(extra)")))
	for _, before := range lists {
		for _, after := range lists {
			r.apply(set(before))
			r.apply(set(after))           // the rig compares with a graph that never knew another
			r.apply(set(before, "extra")) // another group
			r.apply(set(after))
		}
	}
}

// A set that leaves has its last members in the same changes: policies in force may refer to it until those of these changes are.
func TestASetThatLeavesHasItsLastMembers(t *testing.T) {
	other := on("node-2")
	web, policy := pod("shop/web", "10.0.0.1", label("app", "web")), policyOf("one", "app == 'web'", fromSelector("role == 'b'"))
	r := newRig(t, web, policy, pod("a/1", "10.0.1.1", other, label("role", "b")), pod("a/2", "10.0.1.2", other))
	var set model.SetID
	for id := range r.dp.Sets {
		if r.dp.Sets[id][netip.MustParsePrefix("10.0.1.1/32")] {
			set = id
		}
	}
	c := r.apply(pod("a/1", "10.0.1.1", other), pod("a/2", "10.0.1.2", other, label("role", "b")), model.Absent(policy))
	want := map[model.SetID]*model.SetChange{set: {Added: nets("10.0.1.2/32"), Removed: nets("10.0.1.1/32"), Gone: true}}
	if diff := cmp.Diff(want, c.Sets, byValue); diff != "" {
		t.Error(diff)
	}
}
