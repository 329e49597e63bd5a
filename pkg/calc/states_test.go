package calc

import (
	"fmt"
	"slices"
	"testing"

	"github.com/margay-project/margay/pkg/model"
)

// A story is a list of full datastore states. Every story is driven through the graph in many ways, and after each
// state the result must be what a fresh graph makes of that state.
type story struct {
	name   string
	states []world
}

func stories() []story {
	calm := newWorld(
		namespace("shop", "env", "prod"), namespace("blog"),
		pod("shop/web", "10.0.0.1 fd00::1", label("app", "web"), port("http", model.ProtoTCP, 8080)),
		pod("shop/db", "10.0.1.2", label("app", "db"), on("node-2")),
		pod("blog/web", "10.0.0.3", label("app", "web")),
		policyOf("web", "app == 'web'", fromSelector("app == 'db'"), toNamedPort("http", "")),
	)
	with := func(updates ...model.Update) world {
		w := world{}
		for key, u := range calm {
			w[key] = u
		}
		for _, u := range updates {
			w.set(u)
		}
		return w
	}
	egress := policyOf("egress", "all()")
	egress.Policy.AppliesIngress, egress.Policy.AppliesEgress = false, true
	egress.Policy.Egress = []model.Rule{{Action: model.Allow,
		Destination: model.Entity{Service: &model.ServiceKey{Namespace: "shop", Name: "db"}}}}
	slice := func(name string, backends ...string) model.EndpointSliceUpdate {
		return model.EndpointSliceUpdate{ID: model.EndpointSliceID{Namespace: "shop", Name: name},
			Slice: &model.EndpointSlice{
				Service: model.ServiceKey{Namespace: "shop", Name: "db"},
				Addrs:   addrs(backends...),
				Ports:   []model.NamedPort{{Name: "sql", Protocol: model.ProtoTCP, Port: 5432}},
			}}
	}
	netset := func(labels map[string]string, texts ...string) model.NetworkSetUpdate {
		return model.NetworkSetUpdate{ID: model.NetworkSetID{Name: "partners"},
			Set: &model.NetworkSet{Nets: nets(texts...), Labels: labels}}
	}
	tier := func(order float64) model.TierUpdate {
		return model.TierUpdate{Name: "security", Tier: &model.Tier{Order: order, Default: model.Pass}}
	}
	inTier := policyOf("sec", "has(app)", model.Rule{Action: model.Pass})
	inTier.Policy.Tier = "security"

	return []story{
		{"labels come and go", []world{calm,
			with(pod("shop/db", "10.0.1.2", label("app", "web"), on("node-2"))),
			with(pod("shop/web", "10.0.0.1", label("app", "db"))),
			with(namespace("shop", "app", "db")),
			with(namespace("blog", "env", "prod"), policyOf("web", "pcns.env == 'prod'")),
		}},
		{"address moves", []world{calm,
			with(model.Absent(pod("shop/db", "")), pod("blog/db", "10.0.1.2", label("app", "db"), on("node-3"))),
			with(pod("blog/db", "10.0.1.2", label("app", "db"), on("node-3"))),
			with(pod("shop/db", "10.0.1.9", label("app", "db"), on("node-2"))),
		}},
		{"address of a terminating pod", []world{calm,
			with(pod("shop/db", "10.0.1.2", label("app", "db"), on("node-2"), terminating)),
			with(pod("shop/db", "10.0.1.2", label("app", "db"), on("node-2"), terminating),
				pod("blog/db", "10.0.1.2 10.0.0.1", on("node-3"))),
			with(pod("shop/db", "10.0.1.2 fd00::7", label("app", "db"), on("node-2"), terminating),
				pod("shop/a", "10.0.1.2", label("app", "web"), terminating), pod("shop/web", "10.0.0.1", label("app", "web"), terminating),
				pod("blog/db", "10.0.1.2 10.0.0.1", on("node-3"))),
			with(pod("shop/db", "10.0.1.2 fd00::7", label("app", "db"), on("node-2"), terminating), pod("blog/db", "fd00::7")),
		}},
		{"pod moves between nodes", []world{calm,
			with(pod("shop/web", "10.0.0.1", label("app", "web"), on("node-2"))),
			with(pod("shop/db", "10.0.1.2", label("app", "db"))),
		}},
		{"interfaces collide", []world{calm,
			with(pod("shop/web2", "10.0.0.7", label("app", "web"), iface("cali-shop/web"))),
			with(pod("shop/a", "10.0.0.8", label("app", "web"), iface("cali-shop/web"))),
			with(pod("shop/web", "10.0.0.1", iface(""))),
		}},
		{"ports appear and vanish", []world{calm,
			with(pod("shop/db", "10.0.1.2", on("node-2"), port("http", model.ProtoTCP, 80))),
			with(pod("shop/db", "10.0.1.2", on("node-2"), port("http", model.ProtoUDP, 80))),
			with(pod("shop/web", "10.0.0.1", label("app", "web"))),
			with(policyOf("web", "app == 'web'", toNamedPort("http", "app == 'web'"))),
		}},
		{"services", []world{
			with(egress), with(egress, slice("db-1", "10.0.1.2")),
			with(egress, slice("db-1", "10.0.1.2"), slice("db-2", "10.0.1.2", "10.0.1.4")),
			with(egress, slice("db-2", "10.0.1.4")), with(slice("db-2", "10.0.1.4")),
		}},
		{"network sets", []world{calm,
			with(netset(map[string]string{"app": "db"}, "192.0.2.0/24", "10.0.1.2/32")),
			with(netset(map[string]string{"app": "web"}, "192.0.2.0/24")),
			with(netset(map[string]string{"app": "db"}, "192.0.2.0/25", "2001:db8::/32")),
		}},
		{"tiers", []world{
			with(inTier), with(inTier, tier(10)), with(inTier, tier(2e6)), with(tier(10)),
			with(inTier, tier(10), policyOf("web", "app == 'web'")),
		}},
		{"reserved sets", []world{calm,
			with(model.ServiceUpdate{Key: model.ServiceKey{Name: "a"}, Service: &model.Service{Cluster: addrs("10.96.0.1")}}),
			with(model.ServiceUpdate{Key: model.ServiceKey{Name: "b"}, Service: &model.Service{Cluster: addrs("10.96.0.1", "10.96.0.2")}}),
			with(model.NodeUpdate{Name: thisNode, Node: &model.Node{Addrs: addrs("172.16.0.1")}}),
			with(model.NodeUpdate{Name: "node-2", Node: &model.Node{Addrs: addrs("172.16.0.2")}}),
		}},
	}
}

// Expanders make more stories out of one.
var expanders = map[string]func([]world) []world{
	"as told": func(s []world) []world { return s },
	"reversed": func(s []world) []world {
		s = slices.Clone(s)
		slices.Reverse(s)
		return s
	},
	"with nothing in between": func(s []world) []world {
		var out []world
		for _, w := range s {
			out = append(out, w, world{})
		}
		return out
	},
	"there and back": func(s []world) []world {
		var out []world
		for i, w := range s {
			out = append(out, w, s[0], s[len(s)-1-i])
		}
		return out
	},
	"only the end": func(s []world) []world { return s[len(s)-1:] },
}

// A drive turns the updates between two states into batches, each followed by a flush.
var drives = map[string]func([]model.Update) [][]model.Update{
	"one batch": func(u []model.Update) [][]model.Update { return [][]model.Update{u} },
	"one by one": func(u []model.Update) [][]model.Update {
		return slices.Collect(slices.Chunk(u, 1))
	},
	"backwards": func(u []model.Update) [][]model.Update {
		u = slices.Clone(u)
		slices.Reverse(u)
		return slices.Collect(slices.Chunk(u, 1))
	},
	"every update twice": func(u []model.Update) [][]model.Update {
		var out [][]model.Update
		for _, one := range u {
			out = append(out, []model.Update{one, one}, []model.Update{one})
		}
		return out
	},
	"deleted first": func(u []model.Update) [][]model.Update {
		var out []model.Update
		for _, one := range u {
			out = append(out, model.Absent(one), one)
		}
		return [][]model.Update{out}
	},
}

func TestEveryPathToAStateGivesItsResult(t *testing.T) {
	for _, s := range stories() {
		for how, expand := range expanders {
			for pace, drive := range drives {
				for _, late := range []bool{false, true} {
					name := fmt.Sprintf("%s/%s/%s/late sync %v", s.name, how, pace, late)
					t.Run(name, func(t *testing.T) { play(t, expand(s.states), drive, late) })
				}
			}
		}
	}
}

// play drives the states through one graph. InSync comes before everything or, if late, with the last state.
func play(t *testing.T, states []world, drive func([]model.Update) [][]model.Update, late bool) {
	g, dp, was := newGraph(thisNode), newDataplane(), world{}
	inSync := []model.Update{model.InSync{}}
	flush := func(i int) {
		c := g.Flush()
		if !c.InSync {
			if len(c.Sets)+len(c.Endpoints) > 0 {
				t.Fatalf("changes before the first full snapshot: %+v", c)
			}
			return
		}
		if err := dp.apply(c); err != nil {
			t.Fatalf("illegal changes at state %d: %v", i, err)
		}
	}
	if !late {
		g.Apply(inSync)
	}
	for i, now := range states {
		for _, batch := range drive(was.to(now)) {
			g.Apply(batch)
			flush(i)
		}
		if late && i == len(states)-1 {
			g.Apply(inSync)
		}
		flush(i)
		if g.inSync {
			requireSame(t, fresh(t, thisNode, now), dp)
		}
		was = now
	}
}

// Everything in one batch, intermediate states included, is the last state.
func TestSquashedHistoryIsItsLastState(t *testing.T) {
	for _, s := range stories() {
		t.Run(s.name, func(t *testing.T) {
			g, dp, was := newGraph(thisNode), newDataplane(), world{}
			for _, now := range s.states {
				g.Apply(was.to(now))
				was = now
			}
			g.Apply([]model.Update{model.InSync{}})
			if err := dp.apply(g.Flush()); err != nil {
				t.Fatal(err)
			}
			requireSame(t, fresh(t, thisNode, was), dp)
		})
	}
}
