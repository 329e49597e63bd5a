package calc

import (
	"fmt"
	"testing"

	"github.com/margay-project/margay/pkg/model"
)

// admitted makes a graph in which what policies find is looked at often, with so many pods like the one that with returns.
func admitted(t *testing.T, pods int, with func(i int) model.EndpointUpdate) (*Graph, *dataplane) {
	t.Helper()
	g, dp := market(t, 0, 1000)
	g.sets.relief.every = 50
	updates := []model.Update{account(0)}
	for i := range pods {
		updates = append(updates, with(i))
	}
	flushed(t, g, dp, updates...)
	return g, dp
}

// otherPod runs elsewhere, as the ServiceAccount other/a.
func otherPod(i int, addrs string) model.EndpointUpdate {
	return pod(fmt.Sprint("other/p", i), addrs, on("node-2"), profiles("kns.other", "ksa.other.a"))
}

// wantCalm fails if pods that come have policies worked out again.
func wantCalm(t *testing.T, g *Graph, dp *dataplane) {
	t.Helper()
	g.sets.joined = g.sets.relief.every
	if flushed(t, g, dp, otherPod(200, "10.2.0.1")); len(g.Turning()) > 0 {
		t.Fatal("a pod that comes has policies worked out again")
	}
}

// byPort is a policy of a namespace's pods with so many rules about the port http, each of other pods that are all there are.
func byPort(namespace string, rules int) model.PolicyUpdate {
	p := selecting(namespace, "p", 0, rules)
	for i := range p.Policy.Ingress {
		r := &p.Policy.Ingress[i]
		r.Destination, r.Source = model.Entity{NamedPorts: []string{"http"}, Selector: r.Source.Selector}, model.Entity{}
	}
	return p
}

// A pod with an address of each IP version counts once when policies come, and later. Before, it counted twice later: policies that find more
// than three quarters of what they may were worked out again with each pod that came.
func TestPodsOfBothIPVersionsCountOnce(t *testing.T) {
	g, dp := admitted(t, 100, func(i int) model.EndpointUpdate {
		return otherPod(i, fmt.Sprintf("10.1.0.%d fd00:1::%x", 1+i, 1+i))
	})
	flushed(t, g, dp, selecting("shop", "p", 0, 9))
	wantRefused(t, g, "", "")
	wantCalm(t, g, dp)
}

// The addresses of a pod count for each number that it gives a name of ports. Before, 500 pods with 100 numbers and 200 selectors took 10 s and
// 1.1 GB, and 7 s again with each pod that came.
func TestAddressesCountForEachNumberOfANamedPort(t *testing.T) {
	g, dp := admitted(t, 10, func(i int) model.EndpointUpdate {
		u := otherPod(i, fmt.Sprintf("10.1.0.%d 10.1.1.%d", 1+i, 1+i))
		for k := range 20 {
			port("http", model.ProtoTCP, uint16(80+k))(u.Endpoint)
		}
		return u
	})
	flushed(t, g, dp, byPort("evil", 3))
	wantRefused(t, g, "p", "")
	if n := len(g.sets.definitions); n != 0 {
		t.Errorf("%d definitions", n)
	}
	flushed(t, g, dp, byPort("evil", 2))
	wantRefused(t, g, "", "")
	wantCalm(t, g, dp)
}

// Numbers that pods of a namespace give a name of ports leave policies of others in force that find all pods by that name.
func TestNumbersOfANamespaceHaveNoPolicyOfOthersRefused(t *testing.T) {
	const limit, pods, rules = 300, 10, 10
	g, dp := market(t, 0, limit)
	g.sets.spending.perItem, g.sets.relief.every = MaxFoundPerItem, 50
	flushed(t, g, dp, byPort("shop", rules), byPort("evil", rules))
	var updates []model.Update
	for i := range pods {
		u := pod(fmt.Sprint("evil/p", i), fmt.Sprint("10.1.0.", 1+i), on("node-2"))
		for k := range 50 {
			port("http", model.ProtoTCP, uint16(80+k))(u.Endpoint)
		}
		updates = append(updates, u)
	}
	flushed(t, g, dp, updates...)
	for range 2 {
		for len(g.Turning()) > 0 {
			flushed(t, g, dp)
		}
		wantRefused(t, g, "p", "")
		flushed(t, g, dp, model.Absent(byPort("shop", 0)), model.Absent(byPort("evil", 0)))
		flushed(t, g, dp, byPort("shop", rules), byPort("evil", rules)) // as an agent that starts
	}
}

// A policy is charged what selectors find when it comes, also if those of others found less when theirs came. Before, it was admitted and refused
// in turn, with each pod that came.
func TestSelectorsOfOthersCostWhatTheyFindNow(t *testing.T) {
	g, dp := admitted(t, 100, func(i int) model.EndpointUpdate { return otherPod(i, fmt.Sprint("10.1.0.", 1+i)) })
	flushed(t, g, dp, byLabels("shop", "p", 0, 9))
	flushed(t, g, dp, account(9))
	p := selecting("evil", "p", 0, 8)
	p.Policy.Ingress = append(p.Policy.Ingress, byLabels("evil", "p", 0, 9).Policy.Ingress...)
	flushed(t, g, dp, p)
	wantRefused(t, g, "p", "")
	wantCalm(t, g, dp)
	flushed(t, g, dp, byLabels("evil", "p", 0, 9))
	wantRefused(t, g, "", "")
}

// One that found as much as it may when it came, and more now, stays as it is when its rules are worked out again.
func TestWhatIsFoundLaterIsNotChargedWithTheNextChange(t *testing.T) {
	g, dp := admitted(t, 100, func(i int) model.EndpointUpdate { return otherPod(i, fmt.Sprint("10.1.0.", 1+i)) })
	flushed(t, g, dp, byLabels("evil", "p", 0, 12))
	flushed(t, g, dp, account(12))
	wantRefused(t, g, "", "")
	p := byLabels("evil", "p", 0, 12)
	p.Policy.Ingress[0].Action = model.Deny
	flushed(t, g, dp, p)
	wantRefused(t, g, "", "")
}
