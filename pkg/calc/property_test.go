package calc

import (
	"fmt"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/pkg/model"
)

// Every history must leave what the last state alone would give, and every flush must be legal and minimal on the way.
func TestResultDependsOnStateNotOnHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		node := rapid.SampledFrom([]string{thisNode, thisNode, ""}).Draw(t, "graph of node")
		g, dp, w := newGraph(node), newDataplane(), world{}
		inSync := false
		for range rapid.IntRange(1, 12).Draw(t, "batches") {
			batch := rapid.SliceOfN(anyUpdate(), 1, 12).Draw(t, "batch")
			if !inSync && rapid.Bool().Draw(t, "in sync") {
				inSync = true
				batch = append(batch, model.InSync{})
			}
			for _, u := range batch {
				if _, is := u.(model.InSync); !is {
					w.set(u)
				}
			}
			g.Apply(batch)
			if rapid.IntRange(0, 3).Draw(t, "flush") == 0 {
				continue
			}
			flushAndCompare(t, g, dp, w, inSync)
		}
		g.Apply([]model.Update{model.InSync{}})
		flushAndCompare(t, g, dp, w, true)
		if c := g.Flush(); len(c.Endpoints)+len(c.Sets) != 0 {
			t.Fatalf("a flush with nothing new says %+v", c)
		}
		// The same state once more, object by object, is no news either.
		g.Apply(w.updates())
		if c := g.Flush(); len(c.Endpoints)+len(c.Sets) != 0 {
			t.Fatalf("updates that change nothing cause %+v", c)
		}
		checkEmptied(t, g, dp, w)
	})
}

func flushAndCompare(t *rapid.T, g *Graph, dp *dataplane, w world, inSync bool) {
	c := g.Flush()
	if c.InSync != inSync {
		t.Fatalf("InSync is %v, want %v", c.InSync, inSync)
	}
	if !inSync {
		if len(c.Endpoints)+len(c.Sets) != 0 {
			t.Fatalf("changes before the first full snapshot: %+v", c)
		}
		return
	}
	if err := dp.apply(c); err != nil {
		t.Fatalf("illegal changes: %v", err)
	}
	if len(g.sets.touched)+len(g.sets.repopulated)+len(g.sets.unused) != 0 {
		t.Fatalf("the set index is not clean after a flush")
	}
	checkSpending(t, g)
	requireSame(t, fresh(t, g.node, w), dp)
	for _, ep := range g.LocalEndpoints() {
		if dp.Endpoints[ep.ID] != ep {
			t.Fatalf("endpoint %s changed its pointer unannounced", ep.ID)
		}
	}
}

// checkEmptied deletes everything and looks for what stayed behind in the indexes.
func checkEmptied(t *rapid.T, g *Graph, dp *dataplane, w world) {
	g.Apply(w.to(world{}))
	if err := dp.apply(g.Flush()); err != nil {
		t.Fatalf("emptying: %v", err)
	}
	if n, m := g.sets.selected.labels.Len(), g.local.labels.Len(); n+m != 0 {
		t.Fatalf("the label indexes are not empty: %d and %d", n, m)
	}
	if n := len(g.sets.definitions) + len(g.sets.byID) - 2 + len(g.sets.services.backends.slices) + len(g.sets.services.backends.of) + len(g.sets.services.backends.ports); n != 0 {
		t.Fatalf("the set index is not empty: %+v", g.sets)
	}
	if n := len(g.sets.owned.within) + len(g.local.sources); n != 0 {
		t.Fatalf("addresses are no further sources still: %+v, %+v", g.sets.owned, g.local.sources)
	}
	if n := len(g.external.by) + len(g.prefixes.by) + len(g.sets.services.backends.pairs.by) + len(g.sets.services.backends.addrs.by); n != 0 {
		t.Fatalf("something is allotted still: %+v %+v", g.external, g.prefixes)
	}
	if s := g.sets.spending; s.items+len(s.by)+len(s.refused)+len(s.further)+s.allFurther != 0 {
		t.Fatalf("something is charged still: %+v", s)
	}
	if n := len(g.result.groups) + len(g.result.shared) + len(g.owners.interfaces) + g.profiles.Len() - 1 + g.policies.Len(); n != 0 {
		t.Fatalf("the graph is not empty: %+v", g)
	}
	if n := len(g.owners.known) + len(g.owners.contests) + len(g.owners.undecided) + g.owners.reserved.len() + len(g.nodeNames.byName) + len(g.hosted); n != 0 {
		t.Fatalf("addresses have owners still: %+v", g.owners)
	}
}

// oneOf draws from few values, so that histories collide.
func oneOf[T any](t *rapid.T, name string, values ...T) T {
	return rapid.SampledFrom(values).Draw(t, name)
}

func anyUpdate() *rapid.Generator[model.Update] {
	return rapid.Custom(func(t *rapid.T) model.Update {
		return orAbsent(t, drawUpdate(t))
	})
}

// orAbsent is an update, or one of five times the deletion of its object.
func orAbsent(t *rapid.T, u model.Update) model.Update {
	if rapid.IntRange(0, 4).Draw(t, "delete") == 0 {
		return model.Absent(u)
	}
	return u
}

func drawUpdate(t *rapid.T) model.Update {
	switch oneOf(t, "object", "endpoint", "endpoint", "endpoint", "policy", "policy", "profile", "networkset", "slice",
		"tier", "service", "node", "routes", "routes") {
	case "endpoint":
		return drawEndpoint(t)
	case "policy":
		return drawPolicy(t)
	case "profile":
		p := &model.Profile{Labels: drawLabels(t, "pcns.env", "pcns.team", "app")}
		p.Ingress, p.Egress = drawRules(t), drawRules(t)
		return model.ProfileUpdate{Name: oneOf(t, "profile", "kns.a", "kns.b", "ksa.a.x"), Profile: p}
	case "networkset":
		return model.NetworkSetUpdate{
			ID: model.NetworkSetID{Name: oneOf(t, "network set", "n1", "n2")},
			Set: &model.NetworkSet{
				Nets:     rapid.SliceOfN(drawNet(), 0, 3).Draw(t, "nets"),
				Labels:   drawLabels(t, "app", "role"),
				Profiles: drawProfiles(t),
			},
		}
	case "slice":
		return model.EndpointSliceUpdate{
			ID: model.EndpointSliceID{Namespace: "a", Name: oneOf(t, "slice", "s1", "s2", "s3")},
			Slice: &model.EndpointSlice{
				Service: drawService(t),
				Addrs:   rapid.SliceOfNDistinct(drawAddr(), 0, 3, rapid.ID).Draw(t, "backends"),
				Ports:   rapid.SliceOfN(drawPort(), 0, 2).Draw(t, "ports"),
			},
		}
	case "tier":
		return model.TierUpdate{
			Name: oneOf(t, "tier", "security", "platform", model.TierDefault),
			Tier: &model.Tier{
				Order:   oneOf(t, "order", 1.0, 2, 1000, 2e6, model.NoOrder),
				Default: oneOf(t, "default", model.Deny, model.Pass),
			},
		}
	case "service":
		return model.ServiceUpdate{
			Key: drawService(t),
			Service: &model.Service{Cluster: rapid.SliceOfN(drawAddr(), 0, 1).Draw(t, "cluster addresses"),
				External: rapid.SliceOfN(drawAddr(), 0, 2).Draw(t, "external addresses")},
		}
	case "routes":
		return model.RoutesUpdate{Routes: rapid.MapOfN(drawAddr(), rapid.SampledFrom([]string{"cali1", "cali2", "cali3"}), 0, 4).
			Draw(t, "routes")}
	}
	return model.NodeUpdate{
		Name: oneOf(t, "node", thisNode, "node-2"),
		Node: &model.Node{Addrs: rapid.SliceOfN(drawAddr(), 0, 2).Draw(t, "node addresses"), Labels: drawLabels(t, "app", "role")},
	}
}

func drawEndpoint(t *rapid.T) model.EndpointUpdate {
	return model.EndpointUpdate{
		ID: model.WorkloadID(oneOf(t, "ns", "a", "b"), oneOf(t, "pod", "p1", "p2", "p3")),
		Endpoint: &model.Endpoint{
			Node:     oneOf(t, "node", thisNode, thisNode, "node-2"),
			Iface:    oneOf(t, "iface", "cali1", "cali2", "cali3", "cali4", ""),
			Addrs:    rapid.SliceOfNDistinct(drawAddr(), 0, 2, rapid.ID).Draw(t, "addrs"),
			Labels:   drawLabels(t, "app", "role", "pcns.env"),
			Profiles: drawProfiles(t),
			Ports:    rapid.SliceOfN(drawPort(), 0, 2).Draw(t, "ports"),

			Created:     rapid.Uint32Range(0, 2).Draw(t, "created"),
			Terminating: rapid.IntRange(0, 2).Draw(t, "terminating") == 0,
			Unconfirmed: rapid.IntRange(0, 3).Draw(t, "unconfirmed") == 0,
			Sources:     drawSources(t),
		},
	}
}

func drawSources(t *rapid.T) []netip.Prefix {
	if rapid.IntRange(0, 3).Draw(t, "lists sources") > 0 {
		return nil
	}
	return rapid.SliceOfNDistinct(drawNet(), 1, 2, rapid.ID).Draw(t, "sources")
}

func drawPolicy(t *rapid.T) model.PolicyUpdate {
	u := drawAnyPolicy(t)
	if staging, _ := u.Key.Staging(); rapid.IntRange(0, 3).Draw(t, "stands for another") == 0 {
		u.Key, u.Policy.Staged = staging, true
	}
	return u
}

func drawAnyPolicy(t *rapid.T) model.PolicyUpdate {
	return model.PolicyUpdate{
		Key: model.PolicyKey{
			Kind:      oneOf(t, "kind", model.KindNetworkPolicy, model.KindKubernetesNetworkPolicy),
			Namespace: "a",
			Name:      oneOf(t, "policy", "x", "y", "z"),
		},
		Policy: &model.Policy{
			Tier:           oneOf(t, "tier", model.TierDefault, "security", "platform", model.TierKubeAdmin),
			Order:          oneOf(t, "order", 1.0, 2, model.NoOrder),
			Selector:       sel(drawSelector(t)),
			AppliesIngress: rapid.Bool().Draw(t, "ingress"),
			AppliesEgress:  rapid.Bool().Draw(t, "egress"),
			StagedAction:   rapid.SampledFrom([]model.StagedAction{model.StagedSet, model.StagedSet, model.StagedDelete, model.StagedIgnore}).Draw(t, "action"),
			Staged:         rapid.IntRange(0, 4).Draw(t, "staged") == 0,
			Ingress:        drawRules(t),
			Egress:         drawRules(t),
		},
	}
}

func drawRules(t *rapid.T) []model.Rule {
	var rules []model.Rule
	for i := range rapid.IntRange(0, 2).Draw(t, "rules") {
		r := model.Rule{Action: oneOf(t, "action", model.Allow, model.Deny, model.Pass, model.Log), Index: i}
		if rapid.Bool().Draw(t, "with protocol") {
			p := oneOf(t, "protocol", model.ProtoTCP, model.ProtoUDP)
			r.Protocol = &p
		}
		r.Source, r.Destination = drawEntity(t), drawEntity(t)
		rules = append(rules, r)
	}
	return rules
}

func drawEntity(t *rapid.T) model.Entity {
	var e model.Entity
	if rapid.IntRange(0, 4).Draw(t, "service") == 0 {
		s := drawService(t)
		e.Service = &s
		return e
	}
	switch oneOf(t, "peer", "none", "selector", "not", "nets", "nodes") {
	case "selector":
		e.Selector = sel(drawSelector(t))
	case "not":
		e.NotSelector = sel(drawSelector(t))
	case "nodes":
		e.Nodes = sel(drawSelector(t))
		return e
	case "nets":
		e.Nets = rapid.SliceOfN(drawNet(), 0, 2).Draw(t, "nets")
		e.NotNets = rapid.SliceOfN(drawNet(), 0, 1).Draw(t, "not nets")
	}
	names := rapid.SliceOfN(rapid.SampledFrom([]string{"http", "dns"}), 0, 2)
	e.NamedPorts = names.Draw(t, "names")
	if rapid.IntRange(0, 3).Draw(t, "numeric") == 0 {
		e.Ports = []model.PortRange{{Lo: 80, Hi: 81}}
	}
	if rapid.IntRange(0, 3).Draw(t, "negated") == 0 {
		e.NotNamedPorts = names.Draw(t, "not names")
	}
	return e
}

func drawSelector(t *rapid.T) string {
	return oneOf(t, "selector", "all()", "app == 'web'", "app != 'web'", "has(role)", "!has(role)",
		"app in {'web', 'db'} && pcns.env == 'prod'", "pcns.env == 'prod' || role == 'x'", "pcns.team starts with 'b'",
		"app == 'db' && has(pcns.team)", "app in {}")
}

func drawLabels(t *rapid.T, names ...string) map[string]string {
	labels := map[string]string{}
	for _, name := range names {
		if v := oneOf(t, name, "", "web", "db", "prod", "x", "blue"); v != "" {
			labels[name] = v
		}
	}
	return labels
}

func drawProfiles(t *rapid.T) []string {
	return oneOf(t, "profiles", nil, []string{"kns.a"}, []string{"kns.a", "kns.a"}, []string{"kns.b", "ksa.a.x", "kns.b"}, []string{"kns.b", "ksa.a.x"}, []string{"ksa.a.x", "kns.b"})
}

func drawService(t *rapid.T) model.ServiceKey {
	return model.ServiceKey{Namespace: "a", Name: oneOf(t, "service", "s1", "s2")}
}

func drawAddr() *rapid.Generator[netip.Addr] {
	return rapid.Custom(func(t *rapid.T) netip.Addr {
		n := rapid.IntRange(1, 5).Draw(t, "addr")
		if rapid.IntRange(0, 3).Draw(t, "v6") == 0 {
			return netip.MustParseAddr(fmt.Sprintf("fd00::%d", n))
		}
		return netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", n))
	})
}

func drawNet() *rapid.Generator[netip.Prefix] {
	return rapid.SampledFrom(nets("10.0.0.0/8", "10.0.0.1/32", "10.0.0.0/30", "fd00::/16", "0.0.0.0/0"))
}

func drawPort() *rapid.Generator[model.NamedPort] {
	return rapid.SampledFrom([]model.NamedPort{
		{Name: "http", Protocol: model.ProtoTCP, Port: 80},
		{Name: "http", Protocol: model.ProtoTCP, Port: 8080},
		{Name: "dns", Protocol: model.ProtoUDP, Port: 53},
		{Name: "dns", Protocol: model.ProtoTCP, Port: 53},
	})
}
