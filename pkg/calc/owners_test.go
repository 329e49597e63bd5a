package calc

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/model"
)

// Whose an address is, told by the sets it is in: sets of the labels app=a, app=b and so on.
func TestAddressOfATerminatingEndpoint(t *testing.T) {
	app := func(name string) func(*model.Endpoint) { return label("app", name) }
	tests := []struct {
		name string
		pods []model.Update
		want string // the sets of 10.0.0.1
	}{
		{"is its own", []model.Update{pod("x/a", "10.0.0.1", app("a"), terminating)}, "a"},
		{"beside another's address", []model.Update{
			pod("x/a", "10.0.0.1", app("a"), terminating), pod("x/b", "10.0.0.2", app("b"))}, "a"},
		{"is the other's", []model.Update{
			pod("x/a", "10.0.0.1", app("a"), terminating), pod("x/b", "10.0.0.1", app("b"))}, "b"},
		{"is the other's, on another node", []model.Update{
			pod("x/a", "10.0.0.1", app("a"), terminating), pod("x/b", "10.0.0.1", app("b"), on("node-2"))}, "b"},
		{"is the other's, of remote ones", []model.Update{
			pod("x/b", "10.0.0.1", app("a"), terminating, on("node-2")), pod("x/a", "10.0.0.1", app("b"), on("node-2"))}, "b"},
		{"is the oldest's of several terminating ones", []model.Update{
			pod("x/a", "10.0.0.1", app("a"), terminating, created(2)), pod("x/b", "10.0.0.1", app("b"), terminating, created(1))}, "b"},
		{"is none of those that live, if they are as old", []model.Update{
			pod("x/a", "10.0.0.1", app("a"), terminating), pod("x/b", "10.0.0.1", app("b"), terminating),
			pod("x/c", "10.0.0.1", app("c")), pod("x/d", "10.0.0.1", app("d"))}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var policies []model.Update
			for _, name := range []string{"a", "b", "c", "d"} {
				policies = append(policies, policyOf(name, "app == 'probe'", fromSelector(fmt.Sprintf("app == '%s'", name))))
			}
			policies = append(policies, pod("x/probe", "10.0.0.9", app("probe")))
			for _, order := range [][]model.Update{tt.pods, reversed(tt.pods)} {
				r := newRig(t, policies...)
				for _, p := range order {
					r.apply(p)
				}
				requireSets(t, r, tt.want)
				for _, p := range order { // those that live before they terminate
					u := p.(model.EndpointUpdate)
					alive := *u.Endpoint
					alive.Terminating = false
					r.apply(model.EndpointUpdate{ID: u.ID, Endpoint: &alive})
				}
				r.apply(order...)
				requireSets(t, r, tt.want)
				for _, p := range order {
					r.apply(model.Absent(p))
					r.apply(p)
				}
				requireSets(t, r, tt.want)
			}
		})
	}
}

func reversed(updates []model.Update) []model.Update {
	updates = slices.Clone(updates)
	slices.Reverse(updates)
	return updates
}

// requireSets fails unless 10.0.0.1 is in the sets of these values of app.
func requireSets(t *testing.T, r *rig, want string) {
	t.Helper()
	var in []string
	for text, members := range r.sets() {
		if strings.Contains(members, "10.0.0.1/32") {
			in = append(in, strings.Trim(strings.TrimPrefix(text, "selector app == "), `"`))
		}
	}
	slices.Sort(in)
	if got := strings.Join(in, " "); got != want {
		t.Errorf("10.0.0.1 is in the sets of %q, want %q (%v)", got, want, r.sets())
	}
}

// A pod of this node that is being deleted loses its address to the next one, and with it what the dataplane lets it send.
func TestTerminatingEndpointOfThisNodeLosesItsAddress(t *testing.T) {
	old := pod("shop/old", "10.0.0.1 fd00::1", terminating)
	r := newRig(t, namespace("shop"), old)
	if got := fmt.Sprint(r.endpoint("shop/old").Addrs); got != "[10.0.0.1 fd00::1]" {
		t.Errorf("before: %s", got)
	}
	heir := pod("shop/heir", "10.0.0.1")
	c := r.apply(heir)
	if got := slices.Collect(maps.Keys(c.Endpoints)); len(got) != 2 {
		t.Errorf("changed: %v, want both", got)
	}
	if got := fmt.Sprint(r.endpoint("shop/old").Addrs, r.endpoint("shop/heir").Addrs); got != "[fd00::1] [10.0.0.1]" {
		t.Errorf("shared: %s", got)
	}
	if got, _ := r.graph.EndpointByAddr(addrs("10.0.0.1")[0]); got != id("shop/heir") {
		t.Errorf("10.0.0.1 is said to be that of %s", got)
	}
	if p := r.graph.Problems(); len(p) != 0 {
		t.Errorf("problems: %v", p)
	}
	r.apply(model.Absent(heir))
	if got := fmt.Sprint(r.endpoint("shop/old").Addrs); got != "[10.0.0.1 fd00::1]" {
		t.Errorf("alone again: %s", got)
	}
}

// Most addresses are claimed once, and finding that out must not take a look at every endpoint.
func TestOnlySharedAddressesAreLookedFor(t *testing.T) {
	g, looked := New(thisNode), 0
	decide := func() {
		g.owners.decideAll(func(yield func(claim, netip.Addr)) { looked++ }, func(model.EndpointID, netip.Addr) bool { return false })
	}
	join := func(name string, terminating bool, addr string) {
		g.owners.join(claim{id: id(name), terminating: terminating}, addrs(addr)[0])
	}
	join("x/a", false, "10.0.0.1")
	join("x/b", false, "fd00::2")
	join("x/c", true, "10.0.0.3")
	join("x/d", true, "fd00::4")
	decide()
	join("x/e", false, "10.0.0.3")
	decide()
	if looked != 0 {
		t.Errorf("looked %d times, although what has been shared came after what terminates", looked)
	}
	join("x/f", true, "10.0.0.1")
	decide()
	if looked != 1 {
		t.Errorf("looked %d times, want once", looked)
	}
}

// Who owns 10.0.0.1 and why the others do not, whatever their names and in whichever order they come.
func TestOwnerOfAnAddress(t *testing.T) {
	const a = "10.0.0.1"
	routes := func(pairs ...string) model.RoutesUpdate {
		u := model.RoutesUpdate{Routes: map[netip.Addr]string{}}
		for i := 0; i < len(pairs); i += 2 {
			u.Routes[netip.MustParseAddr(pairs[i])] = pairs[i+1]
		}
		return u
	}
	remote := on("node-2")
	node := model.NodeUpdate{Name: "node-3", Node: &model.Node{Addrs: addrs(a)}}
	service := func(s model.Service) model.ServiceUpdate {
		return model.ServiceUpdate{Key: model.ServiceKey{Namespace: "x", Name: "s"}, Service: &s}
	}
	// V is the victim and T the thief; each case is tried with both orders of their names.
	tests := []struct {
		name    string
		updates []model.Update
		owner   string // "x/V", "x/T" or "" for nobody
		lost    string // claims that lost
	}{
		{"routed", []model.Update{routes(a, "cali-V"), pod("x/V", a, iface("cali-V"))}, "x/V", ""},
		{"not routed", []model.Update{routes(), pod("x/V", a, iface("cali-V"))}, "", "x/V NotRouted"},
		{"routed to another", []model.Update{routes(a, "cali-T"), pod("x/V", a, iface("cali-V"))}, "", "x/V NotRouted"},
		{"of the two on this node the one with the route", []model.Update{routes(a, "cali-V"),
			pod("x/V", a, iface("cali-V"), created(9)), pod("x/T", a, iface("cali-T"), created(1))}, "x/V", "x/T Taken"},
		{"terminating with the route", []model.Update{routes(a, "cali-V"),
			pod("x/V", a, iface("cali-V"), terminating), pod("x/T", a, iface("cali-T"))}, "x/V", "x/T Taken"},
		{"annotated beside one with the route", []model.Update{routes(a, "cali-V"),
			pod("x/V", a, iface("cali-V")), pod("x/T", a, iface("cali-T"), unconfirmed)}, "x/V", "x/T Taken"},
		{"annotated with the route", []model.Update{routes(a, "cali-V"), pod("x/V", a, iface("cali-V"), unconfirmed)}, "x/V", ""},
		{"on another node", []model.Update{routes(), pod("x/V", a, remote)}, "x/V", ""},
		{"on another node, another here without route", []model.Update{routes(),
			pod("x/V", a, remote, created(9)), pod("x/T", a, iface("cali-T"), created(1))}, "x/V", "x/T Taken"},
		{"terminating on another node, another here without route", []model.Update{routes(),
			pod("x/V", a, remote, terminating), pod("x/T", a, iface("cali-T"))}, "x/V", "x/T Taken"},
		{"here with the route, another elsewhere", []model.Update{routes(a, "cali-V"),
			pod("x/V", a, iface("cali-V"), created(9)), pod("x/T", a, remote, created(1))}, "x/V", "x/T Taken"},
		{"annotated on another node", []model.Update{routes(), pod("x/T", a, remote, unconfirmed)}, "", ""},
		{"annotated on another node beside another", []model.Update{routes(),
			pod("x/V", a, remote, created(9)), pod("x/T", a, remote, unconfirmed, created(1))}, "x/V", ""},
		{"of two elsewhere the older", []model.Update{routes(),
			pod("x/V", a, remote, created(1)), pod("x/T", a, on("node-3"), created(2))}, "x/V", "x/T Taken"},
		{"of two elsewhere that are as old none", []model.Update{routes(),
			pod("x/V", a, remote, created(1)), pod("x/T", a, on("node-3"), created(1))}, "", "x/T Disputed, x/V Disputed"},
		{"a node's, routed", []model.Update{routes(a, "cali-T"), node, pod("x/T", a, iface("cali-T"))}, "", "x/T Reserved"},
		{"a node's, elsewhere", []model.Update{routes(), node, pod("x/T", a, remote)}, "", "x/T Reserved"},
		{"a Service's cluster address", []model.Update{routes(a, "cali-T"), pod("x/T", a, iface("cali-T")),
			service(model.Service{Cluster: addrs(a)})}, "", "x/T Reserved"},
		{"a Service's external address", []model.Update{routes(a, "cali-V"), pod("x/V", a, iface("cali-V")),
			service(model.Service{External: addrs(a)})}, "x/V", ""},
		{"of two with one interface the older", []model.Update{routes(a, "cali-V"),
			pod("x/V", a, iface("cali-V"), created(1)), pod("x/T", a, iface("cali-V"), created(2))}, "x/V", "x/T Taken"},
		{"of two with one interface that are as old none", []model.Update{routes(a, "cali-V"),
			pod("x/V", a, iface("cali-V")), pod("x/T", a, iface("cali-V"))}, "", "x/T NotRouted, x/V NotRouted"},
	}
	for _, tt := range tests {
		for _, names := range []*strings.Replacer{strings.NewReplacer("x/V", "x/a", "x/T", "x/z"), strings.NewReplacer("x/V", "x/z", "x/T", "x/a")} {
			t.Run(tt.name, func(t *testing.T) {
				var updates []model.Update
				for _, u := range tt.updates {
					if p, ok := u.(model.EndpointUpdate); ok {
						p.ID = id(names.Replace(p.ID.String()))
						u = p
					}
					updates = append(updates, u)
				}
				want := strings.Split(names.Replace(tt.lost), ", ")
				slices.Sort(want)
				for _, order := range permutations(updates) {
					r := newRig(t)
					for _, u := range order {
						r.apply(u)
					}
					owner, ok := r.graph.EndpointByAddr(addrs(a)[0])
					if got := owner.String(); ok && got != names.Replace(tt.owner) || !ok && tt.owner != "" {
						t.Fatalf("owner %v (%v), want %q; order %v", owner, ok, names.Replace(tt.owner), order)
					}
					got := []string{}
					for _, l := range r.graph.LostClaims() {
						got = append(got, l.Endpoint.String()+" "+string(l.Why))
						if l.Text() == "" {
							t.Errorf("%+v has no text", l)
						}
					}
					if slices.Sort(got); strings.Join(got, ", ") != strings.Join(want, ", ") {
						t.Errorf("lost %v, want %v", got, want)
					}
				}
			})
		}
	}
}

func permutations(list []model.Update) [][]model.Update {
	if len(list) < 2 {
		return [][]model.Update{list}
	}
	var all [][]model.Update
	for i := range list {
		rest := slices.Delete(slices.Clone(list), i, i+1)
		for _, p := range permutations(rest) {
			all = append(all, append([]model.Update{list[i]}, p...))
		}
	}
	return all
}

// An address follows the route, and the endpoints that win and lose it are said to have changed.
func TestAddressFollowsTheRoute(t *testing.T) {
	to := func(iface string) model.RoutesUpdate {
		return model.RoutesUpdate{Routes: map[netip.Addr]string{addrs("10.0.0.1")[0]: iface}}
	}
	r := newRig(t, namespace("x"), to("cali-a"), pod("x/a", "10.0.0.1", iface("cali-a")), pod("x/b", "10.0.0.1", iface("cali-b")))
	requireAddrs := func(a, b string) {
		t.Helper()
		if gotA, gotB := fmt.Sprint(r.endpoint("x/a").Addrs), fmt.Sprint(r.endpoint("x/b").Addrs); gotA != a || gotB != b {
			t.Errorf("a has %s, b %s; want %s, %s", gotA, gotB, a, b)
		}
	}
	requireAddrs("[10.0.0.1]", "[]")
	if c := r.apply(to("cali-b")); len(c.Endpoints) != 2 {
		t.Errorf("moved: %+v", c)
	}
	requireAddrs("[]", "[10.0.0.1]")
	if c := r.apply(to("cali-b")); len(c.Endpoints)+len(c.Sets) != 0 {
		t.Errorf("routed the same way once more: %+v", c)
	}
	r.apply(model.RoutesUpdate{Routes: map[netip.Addr]string{}})
	requireAddrs("[]", "[]")
}

func TestServiceThatClaimsWhatIsAnothers(t *testing.T) {
	service := func(name string, s model.Service) model.ServiceUpdate {
		return model.ServiceUpdate{Key: model.ServiceKey{Namespace: "evil", Name: name}, Service: &s}
	}
	r := newRig(t, pod("shop/b", "10.0.0.1"), model.NodeUpdate{Name: "n2", Node: &model.Node{Addrs: addrs("192.0.2.2")}},
		service("dns", model.Service{Cluster: addrs("10.96.0.10"), External: addrs("203.0.113.1")}),
		service("trap", model.Service{Cluster: addrs("10.96.0.11"), External: addrs("10.0.0.1", "192.0.2.2", "10.96.0.10", "10.96.0.11")}))
	var got []string
	for c := range r.graph.ServiceClaims() {
		got = append(got, fmt.Sprintf("%s %s %s", c.Service, c.Addr, c.Of))
	}
	want := "evil/trap 10.0.0.1 endpoint shop/b|evil/trap 10.96.0.10 Service evil/dns|evil/trap 192.0.2.2 node n2"
	if strings.Join(got, "|") != want {
		t.Errorf("got %s\nwant %s", strings.Join(got, "|"), want)
	}
	if p := r.graph.Problems(); !strings.Contains(fmt.Sprint(p), "Service evil/trap its external address 10.0.0.1 is also the address of endpoint shop/b") {
		t.Errorf("problems %v", p)
	}
}
