package calc

import (
	"fmt"
	"strings"
	"testing"

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
