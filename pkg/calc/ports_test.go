package calc

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/pkg/model"
)

// destination returns the destination of the only ingress rule of shop/web, sets by their description.
func (r *rig) destination() model.Side {
	r.t.Helper()
	side := r.endpoint("shop/web").Ingress.Tiers[0].Policies[0].Rules[0].Destination
	name := func(id model.SetID) model.SetID {
		text, ok := r.graph.SetText(id)
		if !ok {
			r.t.Fatalf("no text of set %s", id)
		}
		return model.SetID(text)
	}
	for i := range side.In {
		side.In = []model.SetID{name(side.In[i])}
	}
	for _, m := range []**model.PortMatch{&side.Ports, &side.NotPorts} {
		if *m == nil {
			continue
		}
		match := model.PortMatch{Ranges: (*m).Ranges}
		for _, n := range (*m).Named {
			n.Set = name(n.Set)
			match.Named = append(match.Named, n)
		}
		*m = &match
	}
	return side
}

func TestNamedPortsBecomeSetsByProtocolAndPort(t *testing.T) {
	web80 := model.PortSet{Protocol: model.ProtoTCP, Port: 80, Set: "named port http/tcp 80 of all()"}
	web8080 := model.PortSet{Protocol: model.ProtoTCP, Port: 8080, Set: "named port http/tcp 8080 of all()"}
	db8080 := model.PortSet{Protocol: model.ProtoTCP, Port: 8080, Set: `named port http/tcp 8080 of app == "db"`}
	udp := model.PortSet{Protocol: model.ProtoUDP, Port: 80, Set: "named port http/udp 80 of all()"}
	numeric := []model.PortRange{{Lo: 443, Hi: 443}}
	tests := []struct {
		name     string
		protocol *uint8
		entity   model.Entity
		want     model.Side
	}{
		{"whole cluster", tcp(), model.Entity{NamedPorts: []string{"http"}},
			model.Side{Ports: &model.PortMatch{Named: []model.PortSet{web80, web8080}}}},
		{"any protocol", nil, model.Entity{NamedPorts: []string{"http"}},
			model.Side{Ports: &model.PortMatch{Named: []model.PortSet{web80, web8080, udp}}}},
		{"name given twice", tcp(), model.Entity{NamedPorts: []string{"http", "http"}},
			model.Side{Ports: &model.PortMatch{Named: []model.PortSet{web80, web8080}}}},
		{"selector folded in", tcp(), model.Entity{NamedPorts: []string{"http"}, Selector: sel("app == 'db'")},
			model.Side{Ports: &model.PortMatch{Named: []model.PortSet{db8080}}}},
		{"selector kept beside numeric ports", tcp(),
			model.Entity{NamedPorts: []string{"http"}, Ports: numeric, Selector: sel("app == 'db'")},
			model.Side{In: []model.SetID{`selector app == "db"`},
				Ports: &model.PortMatch{Ranges: numeric, Named: []model.PortSet{db8080}}}},
		{"negated", tcp(), model.Entity{NotNamedPorts: []string{"http"}, NotPorts: numeric, Selector: sel("app == 'db'")},
			model.Side{In: []model.SetID{`selector app == "db"`},
				NotPorts: &model.PortMatch{Ranges: numeric, Named: []model.PortSet{db8080}}}},
		{"nobody exposes it", tcp(), model.Entity{NamedPorts: []string{"nope"}}, model.Side{Ports: &model.PortMatch{}}},
		{"not with that protocol", tcp(), model.Entity{NamedPorts: []string{"syslog"}}, model.Side{Ports: &model.PortMatch{}}},
		{"a protocol without ports", nil, model.Entity{NamedPorts: []string{"odd"}}, model.Side{Ports: &model.PortMatch{}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t,
				pod("shop/web", "10.0.0.1", port("http", model.ProtoTCP, 80), port("odd", model.ProtoUDPLite, 9)),
				pod("shop/db", "10.0.1.2", on("node-2"), label("app", "db"),
					port("http", model.ProtoTCP, 8080), port("http", model.ProtoTCP, 8080), port("syslog", model.ProtoUDP, 514)),
				pod("blog/odd", "10.0.1.3", on("node-3"), port("http", model.ProtoUDP, 80)),
				policyOf("p", "projectcalico.org/namespace == 'shop'",
					model.Rule{Action: model.Allow, Protocol: test.protocol, Destination: test.entity}),
			)
			if diff := cmp.Diff(test.want, r.destination(), byValue); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Members of a named port change sets only; another port number changes the rules.
func TestNamedPortRulesAreRebuiltOnlyForNewPortNumbers(t *testing.T) {
	r := newRig(t,
		pod("shop/web", "10.0.0.1", label("app", "web"), port("http", model.ProtoTCP, 80)),
		pod("blog/x", "10.0.0.9"),
		policyOf("p", "app == 'web'", toNamedPort("http", "")),
	)
	was := r.endpoint("shop/web")
	c := r.apply(pod("shop/b", "10.0.1.2", on("node-2"), port("http", model.ProtoTCP, 80)))
	if len(c.Endpoints) != 0 || len(c.Sets) != 1 || r.endpoint("shop/web") != was {
		t.Errorf("a member came: %+v", c)
	}
	c = r.apply(pod("shop/b", "10.0.1.2", on("node-2"), port("http", model.ProtoTCP, 81)))
	if len(c.Endpoints) != 1 || c.Endpoints[id("shop/web")] == nil || len(c.Sets) != 2 {
		t.Errorf("a port number came: %+v", c)
	}
	if got := len(r.destination().Ports.Named); got != 2 {
		t.Errorf("%d ports", got)
	}
	c = r.apply(pod("shop/b", "10.0.1.2", on("node-2")))
	if len(c.Endpoints) != 1 || len(c.Sets) != 1 {
		t.Errorf("a port number left: %+v", c)
	}
	for setID, change := range c.Sets {
		if !change.Gone {
			t.Errorf("set %s of a port nobody exposes is still there", setID)
		}
	}
}

func TestServiceIsBackendsByPortOrByAddress(t *testing.T) {
	svc := model.ServiceKey{Namespace: "shop", Name: "db"}
	slice := func(name string, ports []model.NamedPort, texts ...string) model.EndpointSliceUpdate {
		return model.EndpointSliceUpdate{ID: model.EndpointSliceID{Namespace: "shop", Name: name},
			Slice: &model.EndpointSlice{Service: svc, Addrs: addrs(texts...), Ports: ports}}
	}
	sql := []model.NamedPort{{Name: "sql", Protocol: model.ProtoTCP, Port: 5432},
		{Name: "odd", Protocol: model.ProtoUDPLite, Port: 9}}
	r := newRig(t,
		pod("shop/web", "10.0.0.1"),
		policyOf("p", "all()",
			model.Rule{Action: model.Allow, Destination: model.Entity{Service: &svc}},
			model.Rule{Action: model.Allow, Source: model.Entity{Service: &svc}},
		),
	)
	if got := r.destination(); got.Ports == nil || len(got.Ports.Named) != 0 {
		t.Errorf("a service without backends must match nothing: %+v", got)
	}
	r.apply(slice("1", sql, "10.0.1.1", "10.0.1.2"), slice("2", nil, "10.0.1.3"))
	want := map[string]string{
		"service shop/db port 5432/tcp": "[10.0.1.1/32 10.0.1.2/32]",
		"service shop/db":               "[10.0.1.1/32 10.0.1.2/32 10.0.1.3/32]",
	}
	if diff := cmp.Diff(want, r.sets()); diff != "" {
		t.Error(diff)
	}
	// A slice that goes over to another Service takes its backends along.
	moved := slice("1", sql, "10.0.1.1", "10.0.1.2")
	moved.Slice.Service.Name = "other"
	r.apply(moved)
	if diff := cmp.Diff(map[string]string{"service shop/db": "[10.0.1.3/32]"}, r.sets()); diff != "" {
		t.Error(diff)
	}
}

func TestSetsOfAServiceAreKnown(t *testing.T) {
	svc := model.ServiceKey{Namespace: "shop", Name: "db"}
	r := newRig(t,
		pod("shop/web", "10.0.0.1", port("http", model.ProtoTCP, 80)),
		policyOf("p", "all()",
			model.Rule{Action: model.Allow, Destination: model.Entity{Service: &svc}},
			model.Rule{Action: model.Allow, Source: model.Entity{Service: &svc}},
			model.Rule{Action: model.Allow, Source: model.Entity{Selector: sel("app == 'db'")}},
			model.Rule{Action: model.Allow, Protocol: tcp(), Destination: model.Entity{NamedPorts: []string{"http"}}},
		),
		model.EndpointSliceUpdate{ID: model.EndpointSliceID{Namespace: "shop", Name: "db"}, Slice: &model.EndpointSlice{
			Service: svc, Addrs: addrs("10.0.1.2"), Ports: []model.NamedPort{{Protocol: model.ProtoTCP, Port: 5432}}}},
	)
	of := map[string]bool{}
	for id := range r.graph.sets.byID {
		text, _ := r.graph.SetText(id)
		of[text] = r.graph.IsOfService(id)
	}
	want := map[string]bool{"addresses of all services": false, "addresses of this node": false,
		"service shop/db": true, "service shop/db port 5432/tcp": true, `selector app == "db"`: false, "named port http/tcp 80 of all()": false}
	for text, is := range want {
		if got, ok := of[text]; !ok || got != is {
			t.Errorf("the set of %s: there is one %t, of a Service %t; want %t", text, ok, got, is)
		}
	}
	if r.graph.IsOfService("svc:gone") {
		t.Error("a set that does not exist is that of a Service")
	}
}
