package calc

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/pkg/model"
)

// backendsOf is an EndpointSlice of a Service with so many addresses, from 10.0.0.0 of the given first byte on, and ports.
func backendsOf(service, name string, first byte, addrs, ports int) model.EndpointSliceUpdate {
	namespace, of, _ := strings.Cut(service, "/")
	s := &model.EndpointSlice{Service: model.ServiceKey{Namespace: namespace, Name: of}}
	for i := range addrs {
		s.Addrs = append(s.Addrs, netip.AddrFrom4([4]byte{first, byte(i >> 16), byte(i >> 8), byte(i)}))
	}
	for i := range ports {
		s.Ports = append(s.Ports, model.NamedPort{Protocol: model.ProtoTCP, Port: uint16(1 + i)})
	}
	return model.EndpointSliceUpdate{ID: model.EndpointSliceID{Namespace: namespace, Name: name}, Slice: s}
}

// toService is a policy of shop's pods, written for all namespaces, with one egress rule to each Service and one ingress rule from it.
func toService(action model.Action, services ...string) model.PolicyUpdate {
	p := &model.Policy{Tier: model.TierDefault, Selector: sel("projectcalico.org/namespace == 'shop'"), AppliesEgress: true, AppliesIngress: true}
	for i, s := range services {
		namespace, name, _ := strings.Cut(s, "/")
		of := model.Entity{Service: &model.ServiceKey{Namespace: namespace, Name: name}}
		p.Egress = append(p.Egress, model.Rule{Action: action, Index: i, Destination: of})
		p.Ingress = append(p.Ingress, model.Rule{Action: action, Index: i, Source: of})
	}
	return model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "to-service"}, Policy: p}
}

// membersOf is how many members all sets of a graph have that are not reserved.
func membersOf(g *Graph) (n int) {
	for id, s := range g.sets.byID {
		if !strings.HasPrefix(string(id), "@") {
			n += s.len()
		}
	}
	return n
}

// rulesOf prints the rules of a pod's first policy in a direction, with the texts of sets and how many members each has.
func rulesOf(t *testing.T, g *Graph, name string, d model.Direction) []string {
	t.Helper()
	ep, ok := g.LocalEndpoint(id(name))
	if !ok {
		t.Fatalf("no endpoint %s", name)
	}
	of := ep.Egress
	if d == model.Ingress {
		of = ep.Ingress
	}
	set := func(id model.SetID) string {
		text, _ := g.SetText(id)
		all, _ := g.SetMembers(id)
		return fmt.Sprintf("%s (%d)", text, len(all))
	}
	var all []string
	for _, r := range of.Tiers[0].Policies[0].Rules {
		text := r.Action.String()
		for _, side := range []model.Side{r.Source, r.Destination} {
			for _, id := range side.In {
				text += " in " + set(id)
			}
			for _, id := range side.NotIn {
				text += " not in " + set(id)
			}
			if side.Ports != nil {
				text += fmt.Sprintf(" %d ports", len(side.Ports.Named))
			}
		}
		all = append(all, text)
	}
	return all
}

// One EndpointSlice may stand for 800,000,000 pairs of address and port. It costs the node a bounded number of members, whether the
// rule is there first or the object, and other policies go on.
func TestBackendsOfOneNamespaceAreBounded(t *testing.T) {
	huge, rest := backendsOf("evil/s", "huge", 1, 40_000, 20_000), backendsOf("evil/s", "small", 2, 10, 2)
	policy := toService(model.Deny, "evil/s", "shop/s")
	for _, order := range [][]model.Update{{policy, huge}, {huge, policy}} {
		r := newRig(t, pod("shop/a", "10.0.0.1"), rest, backendsOf("shop/s", "s", 3, 100, 3))
		for _, u := range order {
			r.apply(u)
		}
		if n := membersOf(r.graph); n > 2*(40_000+20+10+300+100) {
			t.Errorf("sets have %d members", n)
		}
		want := []string{
			"Deny 0 ports", // its ports are too many besides
			"Deny in backends left out of service evil/s, tcp (40010)",
			"Deny 3 ports",
		}
		if got := rulesOf(t, r.graph, "shop/a", model.Egress); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("rules %q, want %q", got, want)
		}
		if got := rulesOf(t, r.graph, "shop/a", model.Ingress); fmt.Sprint(got) != "[Deny in service evil/s (40010) Deny in service shop/s (100)]" {
			t.Errorf("rules by address: %q", got)
		}
		if p := fmt.Sprint(r.graph.Problems()); !strings.Contains(p, "Service evil/s") || strings.Contains(p, "Service shop/s") {
			t.Errorf("problems: %s", p)
		}
		r.apply(backendsOf("evil/s", "huge", 1, 4, 20))
		if got := rulesOf(t, r.graph, "shop/a", model.Egress); fmt.Sprint(got) != "[Deny 20 ports Deny 3 ports]" {
			t.Errorf("rules once there is room: %q", got)
		}
		if p := r.graph.Problems(); strings.Contains(fmt.Sprint(p), "Service evil/s") {
			t.Errorf("problems once there is room: %v", p)
		}
	}
}

// The limit of a graph is MaxBackends, for pairs of an address and a port as for addresses.
func TestAGraphHasRoomForMaxBackends(t *testing.T) {
	g, dp := New(thisNode), newDataplane()
	last := backendsOf("evil/s", "last", 2, 1, 1)
	flushed(t, g, dp, pod("shop/a", "10.0.0.1"), toService(model.Deny, "evil/s"), model.InSync{})
	past := func(members int) string {
		return fmt.Sprintf("Deny in backends left out of service evil/s, tcp (%d)", members)
	}
	for _, test := range []struct {
		what    string
		updates []model.Update
		egress  string
	}{
		{"all pairs", []model.Update{backendsOf("evil/s", "a", 1, MaxBackends/128, 128)}, "[Deny 128 ports]"},
		{"one pair more", []model.Update{last}, "[Deny 1 ports " + past(MaxBackends/128) + "]"},
		{"without it", []model.Update{model.Absent(last)}, "[Deny 128 ports]"},
		{"many addresses", []model.Update{backendsOf("evil/s", "a", 1, MaxBackends-1, 2), last}, "[Deny 1 ports " + past(MaxBackends-1) + "]"},
		{"one address more", []model.Update{backendsOf("evil/s", "a", 1, MaxBackends, 2)}, "[Deny 1 ports " + past(1) + "]"},
	} {
		flushed(t, g, dp, test.updates...)
		if got := fmt.Sprint(rulesOf(t, g, "shop/a", model.Egress)); got != test.egress {
			t.Errorf("%s: rules %s, want %s", test.what, got, test.egress)
		}
	}
}

// A rule that refers to a Service whose backends do not all count fails closed, and no other one does.
func TestRulesOfServicesWithTooManyBackendsFailClosed(t *testing.T) {
	const (
		past   = "backends left out of service evil/s, tcp (2)"
		cover  = "backends left out of service evil/s, tcp (1)"
		covers = "backends left out of service evil/s (1)"
	)
	tests := []struct {
		action             model.Action
		addrs              int
		egress, fromHidden string
	}{
		{model.Allow, 2, "[Allow 1 ports]", "[Allow in service evil/s (3)]"},
		{model.Log, 2, "[Log 1 ports]", "[Log in service evil/s (3)]"},
		{model.Deny, 2, "[Deny 1 ports Deny in " + past + "]", "[Deny in service evil/s (3)]"},
		{model.Pass, 2, "[Pass 1 ports Deny in " + past + "]", "[Pass in service evil/s (3)]"},
		{model.Allow, 3, "[Allow 1 ports]", "[Allow in service evil/s (1)]"},
		{model.Log, 3, "[Log 1 ports]", "[Log in service evil/s (1)]"},
		{model.Deny, 3, "[Deny 1 ports Deny in " + cover + "]", "[Deny in service evil/s (1) Deny in " + covers + "]"},
		{model.Pass, 3, "[Pass 1 ports Deny in " + cover + "]", "[Pass in service evil/s (1) Deny in " + covers + "]"},
	}
	for _, test := range tests {
		t.Run(fmt.Sprint(test.action, " with ", test.addrs), func(t *testing.T) {
			g, dp := New(thisNode), newDataplane()
			g.sets.services.backends = newBackends(3)
			flushed(t, g, dp, pod("shop/a", "10.0.0.1"), toService(test.action, "evil/s"), model.InSync{},
				backendsOf("evil/s", "a", 1, 1, 1), backendsOf("evil/s", "b", 2, test.addrs, 2))
			egress, ingress := rulesOf(t, g, "shop/a", model.Egress), rulesOf(t, g, "shop/a", model.Ingress)
			if fmt.Sprint(egress) != test.egress || fmt.Sprint(ingress) != test.fromHidden {
				t.Errorf("egress %v, want %s; ingress %v, want %s", egress, test.egress, ingress, test.fromHidden)
			}
		})
	}
}

// A rule of another protocol than the ports of the backends that do not count denies nothing.
func TestBackendsThatDoNotCountKeepTheirProtocol(t *testing.T) {
	g, dp := New(thisNode), newDataplane()
	g.sets.services.backends = newBackends(3)
	p, udp := toService(model.Deny, "evil/s"), model.ProtoUDP
	p.Policy.Egress[0].Protocol = &udp
	flushed(t, g, dp, pod("shop/a", "10.0.0.1"), p, backendsOf("evil/s", "a", 1, 2, 2), model.InSync{})
	if got := rulesOf(t, g, "shop/a", model.Egress); fmt.Sprint(got) != "[Deny 0 ports]" {
		t.Errorf("rules %q", got)
	}
}

// A rule has a set for each port of a Service. The author of a Service cannot make a rule of another too large, with one object or
// with many.
func TestPortsOfOneServiceAreBounded(t *testing.T) {
	r := newRig(t, pod("shop/a", "10.0.0.1"), toService(model.Deny, "evil/s"), backendsOf("evil/s", "a", 1, 1, MaxServicePorts))
	want := func(what, egress string, problems bool) {
		t.Helper()
		if got := fmt.Sprint(rulesOf(t, r.graph, "shop/a", model.Egress)); got != egress {
			t.Errorf("%s: rules %s, want %s", what, got, egress)
		}
		if got := rulesOf(t, r.graph, "shop/a", model.Ingress); len(got) != 1 {
			t.Errorf("%s: rules by address: %q", what, got)
		}
		if p := fmt.Sprint(r.graph.Problems()); strings.Contains(p, "Service evil/s") != problems {
			t.Errorf("%s: problems %s", what, p)
		}
	}
	want("as many as there is room for", "[Deny 4096 ports]", false)
	r.apply(backendsOf("evil/s", "b", 2, 3, 1))
	want("one more", "[Deny 0 ports Deny in backends left out of service evil/s, tcp (4)]", true)
	r.apply(backendsOf("evil/t", "b", 2, 3, 1))
	want("the same of another Service", "[Deny 4096 ports]", false)
}

// A namespaced policy pays for a Service before its sets are made.
func TestAServiceIsChargedBeforeItsBackendsAreFound(t *testing.T) {
	g, dp := market(t, 0, 1000)
	p := toService(model.Allow, "evil/s")
	p.Key = model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: "shop", Name: "p"}
	flushed(t, g, dp, backendsOf("evil/s", "a", 1, 100, 20))
	flushed(t, g, dp, p)
	if n := membersOf(g); n != 100 { // egress is refused, ingress is about addresses alone
		t.Errorf("sets have %d members", n)
	}
	wantRefused(t, g, "", "")
}

// How each object counts depends on what there is, not on how it came about.
func TestBackendsDependOnStateNotOnHistory(t *testing.T) {
	limited := func() *Graph {
		g := newGraph(thisNode)
		g.sets.services.backends = newBackends(6)
		g.sets.services.backends.most = 5
		return g
	}
	rapid.Check(t, func(t *rapid.T) {
		g, dp, w := limited(), newDataplane(), world{}
		batch := []model.Update{pod("shop/a", "10.0.0.1"), toService(model.Deny, "evil/s", "evil/t"), model.InSync{}}
		for range rapid.IntRange(1, 12).Draw(t, "batches") {
			for range rapid.IntRange(1, 4).Draw(t, "changes") {
				service := rapid.SampledFrom([]string{"evil/s", "evil/t"}).Draw(t, "service")
				var u model.Update = backendsOf(service, rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "slice"),
					byte(rapid.IntRange(1, 3).Draw(t, "first")), rapid.IntRange(0, 7).Draw(t, "addresses"), rapid.IntRange(0, 3).Draw(t, "ports"))
				if rapid.IntRange(0, 3).Draw(t, "delete") == 0 {
					u = model.Absent(u)
				}
				batch = append(batch, u)
			}
			for _, u := range batch {
				if _, is := u.(model.InSync); !is {
					w.set(u)
				}
			}
			g.Apply(batch)
			if err := dp.apply(g.Flush()); err != nil {
				t.Fatalf("illegal changes: %v", err)
			}
			batch = nil
			again, alone := limited(), newDataplane()
			again.Apply(append(w.updates(), model.InSync{}))
			if err := alone.apply(again.Flush()); err != nil {
				t.Fatal(err)
			}
			requireSame(t, alone, dp)
			checkSpending(t, g)
			for service, ids := range g.sets.services.backends.of {
				if len(ids) == 0 {
					t.Fatalf("%s is kept without an object", service)
				}
			}
		}
	})
}
