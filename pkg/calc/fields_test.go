package calc

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/margay-project/margay/pkg/model"
)

// around are objects for which each field of an object beside them makes a difference.
func around() []model.Update {
	service := func(name string) model.Entity {
		return model.Entity{Service: &model.ServiceKey{Namespace: "a", Name: name}}
	}
	allow := func(source, destination model.Entity) model.Rule {
		return model.Rule{Action: model.Allow, Source: source, Destination: destination}
	}
	probe := policyOf("probe", "app == 'probe'", fromSelector("app == 'web'"), fromSelector("app == 'db'"), fromSelector("app == 'rival'"), fromSelector("pcns.env == 'prod'"),
		toNamedPort("http", ""), allow(service("s1"), service("s1")), allow(service("s2"), service("s2")), allow(model.Entity{Nodes: sel("zone == 'x'")}, model.Entity{}))
	probe.Policy.Order = 20
	return []model.Update{
		namespace("a"), namespace("b", "env", "prod"), probe, policyOf("env", "pcns.env == 'prod'"), policyOf("db", "app == 'db'"),
		pod("a/probe", "10.0.0.9", label("app", "probe")), listing("a/gw", "10.9.0.1", "10.0.0.0/16"),
	}
}

// eachField changes each field of an object alone, and back. The graph must be like a new one then, whatever it compares to see whether there is
// something to do. The change makes a difference, but of the fields that are silent.
func eachField[T any](t *testing.T, beside []model.Update, base func() *T, update func(*T) model.Update, changes map[string]func(*T), silent ...string) {
	t.Helper()
	for i := range reflect.TypeFor[T]().NumField() {
		name := reflect.TypeFor[T]().Field(i).Name
		t.Run(reflect.TypeFor[T]().Name()+"."+name, func(t *testing.T) {
			now := base()
			if changes[name] == nil {
				t.Fatal("there is no change of it")
			}
			if changes[name](now); reflect.DeepEqual(base(), now) {
				t.Fatal("it does not change")
			}
			r := newRig(t, append(append(around(), beside...), update(base()))...)
			before := fresh(t, thisNode, r.world)
			r.become(update(now))
			if same := reflect.DeepEqual(before, r.dp); same != slices.Contains(silent, name) {
				t.Errorf("the change makes no difference: %v", same)
			}
			r.become(update(base()))
		})
	}
}

// become is apply, with as many flushes as that takes.
func (r *rig) become(u model.Update) {
	r.t.Helper()
	r.world.set(u)
	r.graph.Apply([]model.Update{u})
	for n := 0; n == 0 || r.graph.HasMore(); n++ {
		if err := r.dp.apply(r.graph.Flush()); err != nil || n > 5 {
			r.t.Fatalf("illegal changes, or no end of them: %v", err)
		}
	}
	requireSame(r.t, fresh(r.t, r.graph.node, r.world), r.dp)
}

func TestEachFieldOfAnEndpointCounts(t *testing.T) {
	x := func(addrs string) func() *model.Endpoint {
		return func() *model.Endpoint {
			return pod("a/x", addrs, iface("cali-x"), label("app", "web"), created(2), port("http", model.ProtoTCP, 8080)).Endpoint
		}
	}
	update := func(ep *model.Endpoint) model.Update { return model.EndpointUpdate{ID: id("a/x"), Endpoint: ep} }
	changes := map[string]func(*model.Endpoint){
		"Node": on("node-2"), "Iface": iface("cali-y"), "Addrs": func(ep *model.Endpoint) { ep.Addrs = addrs("10.0.0.4") },
		"Labels": func(ep *model.Endpoint) { ep.Labels = map[string]string{"app": "db"} }, "Profiles": profiles("kns.a", "kns.b"),
		"Ports": func(ep *model.Endpoint) {
			ep.Ports = []model.NamedPort{{Name: "http", Protocol: model.ProtoTCP, Port: 9090}}
		},
		"Sources": func(ep *model.Endpoint) { ep.Sources = nets("203.0.113.0/24") }, "Created": created(4), "Terminating": terminating, "Unconfirmed": unconfirmed,
		"HostNetwork": func(ep *model.Endpoint) { ep.HostNetwork = true },
	}
	t.Run("claimed elsewhere, too", func(t *testing.T) {
		rival := pod("a/rival", "10.0.0.1", on("node-2"), created(3), label("app", "rival"))
		eachField(t, []model.Update{rival}, x("10.0.0.1"), update, changes, "Unconfirmed")
	})
	t.Run("on the interface of another", func(t *testing.T) {
		twin := pod("a/twin", "10.0.0.2", iface("cali-x"), created(3), label("app", "rival"))
		eachField(t, []model.Update{twin}, x("10.0.0.1"), update, changes, "Unconfirmed", "Terminating")
	})
	t.Run("with an address that is not routed", func(t *testing.T) {
		routes := model.RoutesUpdate{Routes: map[netip.Addr]string{addrs("10.0.0.1")[0]: "cali-x"}}
		eachField(t, []model.Update{routes}, x("10.0.0.1 10.0.0.3"), update, changes, "Created", "Terminating")
	})
}

func TestEachFieldOfAPolicyCounts(t *testing.T) {
	eachField(t, []model.Update{inTier("t", "security", 1), pod("a/y", "10.0.0.5", label("app", "db"))},
		func() *model.Policy {
			p := policyOf("x", "app == 'probe'", fromSelector("app == 'web'")).Policy
			p.Egress = []model.Rule{fromSelector("app == 'web'")}
			return p
		},
		func(p *model.Policy) model.Update { return model.PolicyUpdate{Key: gnp("x"), Policy: p} },
		map[string]func(*model.Policy){
			"Tier": func(p *model.Policy) { p.Tier = "security" }, "Order": func(p *model.Policy) { p.Order = 30 },
			"Selector":       func(p *model.Policy) { p.Selector = sel("app == 'db'") },
			"AppliesIngress": func(p *model.Policy) { p.AppliesIngress = false }, "AppliesEgress": func(p *model.Policy) { p.AppliesEgress = true },
			"Staged": func(p *model.Policy) { p.Staged = true }, "StagedAction": func(p *model.Policy) { p.StagedAction = model.StagedLearn },
			"Ingress": func(p *model.Policy) { p.Ingress = []model.Rule{fromSelector("app == 'db'")} },
			"Egress":  func(p *model.Policy) { p.Egress = nil },
			"Packed":  func(p *model.Policy) { p.Packed = policyOf("x", "", many("app == 'db'")...).Policy.Pack().Packed },
		}, "Egress")
}

// many are so many equal rules that Pack packs them.
func many(selector string) (rules []model.Rule) {
	for range 100 {
		rules = append(rules, fromSelector(selector))
	}
	return rules
}

// Policies come packed from a datastore. They mean the same, in each flush.
func TestPackedPoliciesMeanTheSame(t *testing.T) {
	p := func(selector string) model.PolicyUpdate { return policyOf("x", "app == 'web'", many(selector)...) }
	web, db := pod("a/w", "10.0.0.1", label("app", "web")), pod("a/d", "10.0.0.2", label("app", "db"))
	plain := newRig(t, web, db, p("app == 'db'"))
	packed := newRig(t, web, db, model.Pack(p("app == 'web'")))
	if packed.apply(model.Pack(p("app == 'db'"))); model.Pack(p("app == 'db'")).(model.PolicyUpdate).Policy.Packed == nil {
		t.Fatal("it is not packed")
	}
	requireSame(t, plain.dp, packed.dp)
	if n := len(packed.graph.policies.Get(gnp("x")).active.ruleset(model.Ingress).rules.Rules); n != 100 {
		t.Errorf("%d rules, want 100", n)
	}
}

func TestEachFieldOfOtherObjectsCounts(t *testing.T) {
	eachField(t, []model.Update{inTier("t", "x", 1), inTier("u", "y", 1), inTier("v", "y", 2), model.TierUpdate{Name: "y", Tier: &model.Tier{Order: 20, Default: model.Deny}}},
		func() *model.Tier { return &model.Tier{Order: 10, Default: model.Deny} },
		func(tier *model.Tier) model.Update { return model.TierUpdate{Name: "x", Tier: tier} },
		map[string]func(*model.Tier){
			"Order": func(tier *model.Tier) { tier.Order = 30 }, "Default": func(tier *model.Tier) { tier.Default = model.Pass }})
	eachField(t, []model.Update{pod("a/y", "10.0.0.5", profiles("p"))},
		func() *model.Profile {
			return &model.Profile{Labels: map[string]string{"app": "web"}, Ingress: []model.Rule{{Action: model.Allow}}, Egress: []model.Rule{{Action: model.Allow}}}
		},
		func(p *model.Profile) model.Update { return model.ProfileUpdate{Name: "p", Profile: p} },
		map[string]func(*model.Profile){
			"Labels":  func(p *model.Profile) { p.Labels = map[string]string{"app": "db"} },
			"Ingress": func(p *model.Profile) { p.Ingress = nil }, "Egress": func(p *model.Profile) { p.Egress = nil }})
	eachField(t, nil,
		func() *model.NetworkSet {
			return &model.NetworkSet{Nets: nets("192.0.2.0/24"), Labels: map[string]string{"app": "web"}, Profiles: []string{"kns.a"}}
		},
		func(s *model.NetworkSet) model.Update {
			return model.NetworkSetUpdate{ID: model.NetworkSetID{Namespace: "a", Name: "n"}, Set: s}
		},
		map[string]func(*model.NetworkSet){
			"Nets": func(s *model.NetworkSet) { s.Nets = nets("192.0.2.0/25") }, "Labels": func(s *model.NetworkSet) { s.Labels = map[string]string{"app": "db"} },
			"Profiles": func(s *model.NetworkSet) { s.Profiles = []string{"kns.b"} }, "LeftOut": func(s *model.NetworkSet) { s.LeftOut = true }})
	eachField(t, nil,
		func() *model.EndpointSlice {
			return &model.EndpointSlice{Service: model.ServiceKey{Namespace: "a", Name: "s1"}, Addrs: addrs("10.0.5.1"), Ports: []model.NamedPort{{Protocol: model.ProtoTCP, Port: 80}}}
		},
		func(s *model.EndpointSlice) model.Update {
			return model.EndpointSliceUpdate{ID: model.EndpointSliceID{Namespace: "a", Name: "e"}, Slice: s}
		},
		map[string]func(*model.EndpointSlice){
			"Service": func(s *model.EndpointSlice) { s.Service.Name = "s2" }, "Addrs": func(s *model.EndpointSlice) { s.Addrs = addrs("10.0.5.2") },
			"Ports":   func(s *model.EndpointSlice) { s.Ports = []model.NamedPort{{Protocol: model.ProtoTCP, Port: 81}} },
			"LeftOut": func(s *model.EndpointSlice) { s.LeftOut = true }})
	eachField(t, nil,
		func() *model.Service { return &model.Service{Cluster: addrs("10.96.0.1")} },
		func(s *model.Service) model.Update {
			return model.ServiceUpdate{Key: model.ServiceKey{Namespace: "a", Name: "s1"}, Service: s}
		},
		map[string]func(*model.Service){
			"Cluster": func(s *model.Service) { s.Cluster = addrs("10.96.0.2") }, "External": func(s *model.Service) { s.External = addrs("203.0.113.1") },
			"Ports":    func(s *model.Service) { s.Ports = []model.NamedPort{{Protocol: model.ProtoTCP, Port: 80}} },
			"Headless": func(s *model.Service) { s.Headless = true }}, "Ports", "Headless")
	for _, name := range []string{thisNode, "node-2"} {
		eachField(t, nil,
			func() *model.Node {
				return &model.Node{Addrs: addrs("172.16.0.1"), Labels: map[string]string{"zone": "x"}}
			},
			func(n *model.Node) model.Update { return model.NodeUpdate{Name: name, Node: n} },
			map[string]func(*model.Node){
				"Addrs": func(n *model.Node) { n.Addrs = addrs("172.16.0.2") }, "Labels": func(n *model.Node) { n.Labels = nil }})
	}
}
