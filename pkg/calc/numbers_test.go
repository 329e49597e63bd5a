package calc

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/model"
)

// manyNumbers is a pod that gives the name http so many numbers, from first on.
func manyNumbers(name, addr string, first, n int) model.EndpointUpdate {
	u := pod(name, addr, on("node-2"))
	for i := range n {
		u.Endpoint.Ports = append(u.Endpoint.Ports, model.NamedPort{Name: "http", Protocol: model.ProtoTCP, Port: uint16(first + i)})
	}
	return u
}

// byName is a policy of shop's pods about a port by its name.
func byName(action model.Action) model.PolicyUpdate {
	r := model.Rule{Action: action, Protocol: tcp(), Destination: model.Entity{NamedPorts: []string{"http"}}}
	return model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "by-name"}, Policy: &model.Policy{
		Tier: model.TierDefault, Selector: sel("projectcalico.org/namespace == 'shop'"), AppliesEgress: true, Egress: []model.Rule{r}}}
}

func namedPorts(t *testing.T, g *Graph) (all []model.PortSet, rules int) {
	t.Helper()
	for _, rs := range g.policies.Get(byName(model.Allow).Key).active.rules {
		if rs != nil {
			return rs.rules.Rules[0].Destination.Ports.Named, len(rs.rules.Rules)
		}
	}
	t.Fatal("the policy is not active")
	return nil, 0
}

// A name to which one namespace gives every number there is costs the rules that name it a bounded number of sets, whatever
// order pods come in, and other namespaces' numbers count all the same.
func TestANamespaceGivesANameOnlySoManyNumbers(t *testing.T) {
	g, dp := New(thisNode), newDataplane()
	flushed(t, g, dp, pod("shop/a", "10.0.0.2"), byName(model.Allow), model.InSync{},
		pod("other/p", "10.0.0.3", on("node-2"), port("http", model.ProtoTCP, 65000)))
	const pods = 60
	var all []model.Update
	for i := range pods {
		all = append(all, manyNumbers(fmt.Sprint("evil/p", i), fmt.Sprintf("10.1.0.%d", i+1), 1+i*1000, 1000))
	}
	check := func(want int) {
		t.Helper()
		ports, rules := namedPorts(t, g)
		if len(ports) != want || rules != 1 {
			t.Errorf("%d numbers in %d rules, want %d in 1", len(ports), rules, want)
		}
		if last := ports[len(ports)-1]; last.Port != 65000 {
			t.Errorf("the other namespace's number is not there, the last is %d", last.Port)
		}
	}
	flushed(t, g, dp, all[:30]...)
	check(MaxPortNumbers + 1)
	flushed(t, g, dp, all[30:]...)
	check(MaxPortNumbers + 1)
	if ports, _ := namedPorts(t, g); ports[MaxPortNumbers-1].Port != MaxPortNumbers {
		t.Errorf("the numbers that count are not the lowest: %v", ports)
	}
	problems := func() (found []string) {
		for _, p := range g.Problems() {
			if p.Kind == LeftOut {
				found = append(found, p.Object+": "+p.Text)
			}
		}
		return found
	}
	if p := problems(); len(p) != 1 || !strings.HasPrefix(p[0], "Namespace evil: its pods give the port name http more than 128 numbers") {
		t.Errorf("problems: %q", p)
	}
	flushed(t, g, dp, byName(model.Deny))
	if _, rules := namedPorts(t, g); rules != 2 {
		t.Errorf("a Deny is %d rules, want one more for the pods whose numbers do not count", rules)
	}
	flushed(t, g, dp, byName(model.Allow))
	var gone []model.Update
	for _, u := range all[1:] {
		gone = append(gone, model.Absent(u))
	}
	flushed(t, g, dp, append(gone, manyNumbers("evil/p0", "10.1.0.1", 1, 20))...)
	check(21)
	if p := problems(); len(p) != 0 {
		t.Errorf("problems in the end: %q", p)
	}
	for _, d := range g.sets.definitions {
		if d.numbers != nil {
			t.Errorf("numbers are still counted: %d namespaces", len(d.numbers.of))
		}
	}
}

// A pod that comes and goes at the limit costs in proportion to the pods of its own namespace.
func TestNumbersAtTheLimitMoveOnlyPodsOfTheirNamespace(t *testing.T) {
	g, dp := New(thisNode), newDataplane()
	updates := []model.Update{pod("shop/a", "10.0.0.2"), byName(model.Allow), model.InSync{},
		manyNumbers("evil/p", "10.1.0.1", 1000, MaxPortNumbers+5)}
	for i := range 300 {
		updates = append(updates, pod(fmt.Sprint("other/p", i), fmt.Sprintf("10.2.%d.%d", i/250, 1+i%250), on("node-2"), port("http", model.ProtoTCP, 8080)))
	}
	flushed(t, g, dp, updates...)
	lowest := manyNumbers("evil/q", "10.1.0.2", 1, 1)
	for range 3 {
		for _, u := range []model.Update{lowest, model.Absent(lowest)} {
			g.Apply([]model.Update{u})
			for id, c := range g.Flush().Sets {
				if !c.Gone && len(c.Added)+len(c.Removed) > 2 {
					text, _ := g.SetText(id)
					t.Errorf("%s: %d added, %d removed", text, len(c.Added), len(c.Removed))
				}
			}
		}
	}
}

// An endpoint may have the labels of two Namespaces. It is one of the first, and the limit of the other one moves it nowhere.
func TestAnEndpointOfTwoNamespacesCountsForItsOwn(t *testing.T) {
	const last = 1000 + MaxPortNumbers - 1
	both := pod("other/both", "10.2.0.1", on("node-2"), profiles("kns.other", "kns.evil"), port("http", model.ProtoTCP, last))
	r := newRig(t, pod("shop/a", "10.0.0.2"), byName(model.Allow), both, manyNumbers("evil/p", "10.1.0.1", 1000, MaxPortNumbers+5))
	lowest := manyNumbers("evil/q", "10.1.0.2", 1, 1)
	for _, u := range []model.EndpointUpdate{lowest, model.Absent(lowest).(model.EndpointUpdate), lowest} {
		r.apply(u)
		var members map[netip.Prefix]bool
		ports, _ := namedPorts(t, r.graph)
		for _, p := range ports {
			if p.Port == last {
				members = r.dp.Sets[p.Set]
			}
		}
		if evil := u.Endpoint == nil; !members[netip.MustParsePrefix("10.2.0.1/32")] || members[netip.MustParsePrefix("10.1.0.1/32")] != evil {
			t.Errorf("%d is given by %v; want the endpoint of both, and the other one: %t", last, members, evil)
		}
	}
}

// manyNames is a pod with so many ports, each with a name of its own.
func manyNames(name, addr string, n int) model.EndpointUpdate {
	u := pod(name, addr, on("node-2"))
	for i := range n {
		u.Endpoint.Ports = append(u.Endpoint.Ports, model.NamedPort{Name: fmt.Sprintf("port-%05d", i), Protocol: model.ProtoTCP, Port: 80})
	}
	return u
}

// A pod with 40,000 ports comes and goes at about the same cost whether or not rules name ports, one of them or thousands. Before, each
// port was compared with all others for a selector, and each name that the pod has with all ports: 350 times the cost. Now it is twice.
func TestPodsWithVeryManyPortsCostInProportion(t *testing.T) {
	const ports, named, most = 40_000, 500, 50
	cost := func(names ...string) time.Duration {
		g, dp := New(thisNode), newDataplane()
		policy := byName(model.Allow)
		policy.Policy.Egress[0].Destination.NamedPorts = names
		flushed(t, g, dp, pod("shop/a", "10.0.0.2"), policy, model.InSync{})
		return testutil.LeastCPUTime(t, func() {
			u := manyNames("evil/p", "10.1.0.1", ports)
			flushed(t, g, dp, u)
			if len(names) > 0 {
				if got, _ := namedPorts(t, g); len(got) != len(names) {
					t.Errorf("%d ports, want %d", len(got), len(names))
				}
			}
			flushed(t, g, dp, model.Absent(u))
		})
	}
	var names []string
	for i := range named {
		names = append(names, fmt.Sprintf("port-%05d", i*(ports/named)))
	}
	none, one, many := cost(), cost(names[0]), cost(names...)
	t.Logf("no name: %s, one: %s, %d: %s", none, one, named, many)
	if one > most*none {
		t.Errorf("one name in a rule makes the pod cost %s where it costs %s without", one, none)
	}
	if many > most*none {
		t.Errorf("%d names in a rule make the pod cost %s where it costs %s without", named, many, none)
	}
}
