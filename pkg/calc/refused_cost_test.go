package calc

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/model"
)

// Policies that are refused in the end cost less than one that is not, however many there are. Before, each found as much as a namespace may,
// and that was kept until the last one was refused: 30 took 1.5 s and 560 MB with each change of a policy of the namespace.
func TestPoliciesThatAreRefusedFindNothing(t *testing.T) {
	const prefixes, refused = 20_000, 20
	g, dp := market(t, 0, 3*prefixes)
	large := found("evil", "s", "yes", 0, 1)
	for i := range prefixes {
		large.Set.Nets = append(large.Set.Nets, netip.PrefixFrom(netip.AddrFrom4([4]byte{11, 0, byte(i >> 8), byte(i)}), 32))
	}
	flushed(t, g, dp, large)
	policy := func(name string, rules int) model.PolicyUpdate {
		p := selecting("evil", name, 0, rules)
		for i := range p.Policy.Ingress {
			p.Policy.Ingress[i].Source.Selector = sel(fmt.Sprintf("found == 'yes' && other != '%s-%d'", name, i))
		}
		return p
	}
	n := 0
	one := testutil.LeastCPUTime(t, func() {
		n++
		flushed(t, g, dp, policy(fmt.Sprint("one-", n), 1), model.Absent(policy(fmt.Sprint("one-", n-1), 0)))
	})
	wantRefused(t, g, "", "")
	var list []model.Update
	for i := range refused {
		list = append(list, policy(fmt.Sprint("refused-", i), 10))
	}
	flushed(t, g, dp, append(list, model.Absent(policy(fmt.Sprint("one-", n), 0)))...)
	many := testutil.LeastCPUTime(t, func() {
		n++
		flushed(t, g, dp, policy(fmt.Sprint("other-", n), 0))
	})
	if got := strings.Fields(refusedOf(t, g, "evil/m")); len(got) != refused {
		t.Errorf("refused: %v", got)
	}
	t.Logf("one policy with one selector: %s, %d that are refused: %s", one, refused, many)
	if many > one {
		t.Errorf("%d policies that are refused cost %s, and one that is not %s", refused, many, one)
	}
}

// What a policy is refused for is known before anything is found: also the sets of named ports with very many numbers.
func TestWhatAPolicyFindsIsKnownBefore(t *testing.T) {
	const pods, rules = 100, 10
	g, dp := market(t, 0, rules*pods*5/2)
	var updates []model.Update
	for i := range pods {
		updates = append(updates, pod(fmt.Sprint("evil/p", i), fmt.Sprint("10.1.0.", 1+i), on("node-2"), port("http", model.ProtoTCP, uint16(80+i))))
	}
	flushed(t, g, dp, updates...)
	before := g.sets.joined
	flushed(t, g, dp, byPort("evil", rules))
	wantRefused(t, g, "p", "")
	if n := g.sets.joined - before; n != 0 {
		t.Errorf("a policy that is refused has found %d", n)
	}
}

// So are those of Services with very many ports.
func TestWhatAPolicyFindsByServicesIsKnownBefore(t *testing.T) {
	const services, ports = 4, 100
	g, dp := market(t, 0, services*ports*3/2)
	var updates []model.Update
	p := selecting("evil", "p", 0, services)
	p.Policy.AppliesIngress, p.Policy.AppliesEgress, p.Policy.Egress, p.Policy.Ingress = false, true, p.Policy.Ingress, nil
	for i := range services {
		key := model.ServiceKey{Namespace: "evil", Name: fmt.Sprint("s", i)}
		slice := &model.EndpointSlice{Service: key, Addrs: addrs(fmt.Sprint("10.1.0.", i))}
		for k := range ports {
			slice.Ports = append(slice.Ports, model.NamedPort{Protocol: model.ProtoTCP, Port: uint16(80 + k)})
		}
		updates = append(updates, model.EndpointSliceUpdate{ID: model.EndpointSliceID{Namespace: "evil", Name: key.Name}, Slice: slice})
		p.Policy.Egress[i].Source, p.Policy.Egress[i].Destination = model.Entity{}, model.Entity{Service: &key}
	}
	flushed(t, g, dp, append(updates, p)...)
	if len(g.sets.spending.refused) != 1 || g.sets.contributions != 0 {
		t.Errorf("%d are refused, backends were looked up %d times", len(g.sets.spending.refused), g.sets.contributions)
	}
}

// What a selector costs does not depend on how many others are about the same label: those of other namespaces may be.
func TestSelectorsCostTheSameBesideOthers(t *testing.T) {
	about := func(namespace string, first, rules int) model.PolicyUpdate {
		p := selecting(namespace, "p", 0, rules)
		for i := range p.Policy.Ingress {
			p.Policy.Ingress[i].Source.Selector = sel(fmt.Sprintf("app == 'web' && tier != '%d'", first+i))
		}
		return p
	}
	g, dp := market(t, 0, 500)
	flushed(t, g, dp, about("shop", 0, 10))
	alone := g.sets.spending.sumOf("shop")
	flushed(t, g, dp, model.Absent(about("shop", 0, 0)))
	flushed(t, g, dp, about("evil", 100, 100))
	flushed(t, g, dp, about("shop", 0, 10))
	wantRefused(t, g, "", "")
	if n := g.sets.spending.sumOf("shop"); n != alone {
		t.Errorf("charged %d, and %d beside others", alone, n)
	}
}

// Policies that are refused one after the other, because each finds too much, are looked at in parts, between which other changes come. Before,
// each change of a policy of the namespace took as long as looking at all of them: 5 s for 50 that are tried with 1,000 pods of different labels.
func TestManyPoliciesThatAreRefusedAreLookedAtInParts(t *testing.T) {
	const policies, pods, limit = 20, 100, 1000
	g, dp := market(t, 0, limit)
	g.InParts(1000)
	var updates []model.Update
	for i := range pods {
		updates = append(updates, pod(fmt.Sprint("other/p", i), fmt.Sprint("10.1.0.", 1+i), on("node-2"), label("app", fmt.Sprint("a", i))))
	}
	for i := range policies {
		updates = append(updates, selecting("evil", fmt.Sprintf("p-%02d", i), 100*i, 20))
	}
	for _, updates := range [][]model.Update{
		append(updates, byLabels("evil", "small", 0, 1), byLabels("shop", "small", 0, 1)),
		{byLabels("evil", "other", 5, 1)}, // all are looked at again
	} {
		flushed(t, g, dp, updates...)
		n := 1
		for ; len(g.Turning()) > 0; n++ {
			if sets, is := g.Turning()["evil"]; sets || !is || refusedOf(t, g, "shop/a") != "" {
				t.Fatalf("%v is to follow, of shop is refused: %s", g.Turning(), refusedOf(t, g, "shop/a"))
			}
			if flushed(t, g, dp); n > policies {
				t.Fatal("flushes without end")
			}
		}
		if n < policies/2 {
			t.Errorf("%d are looked at in %d flushes", policies, n)
		}
		if got := strings.Fields(refusedOf(t, g, "evil/m")); len(got) != policies || got[0] != "p-00" {
			t.Errorf("refused: %v", got)
		}
	}
}
