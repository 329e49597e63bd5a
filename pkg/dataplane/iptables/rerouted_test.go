package iptables

import (
	"testing"

	"github.com/margay-project/margay/pkg/further"
)

// A route to a further source that changes has live flows judged again: policy has allowed them to the pod, or the machine outside, that the
// source was routed to. Nothing else about routes does.
func TestFlowsAreJudgedAgainWhenAFurtherSourceIsRerouted(t *testing.T) {
	n := newFakeNode(t)
	n.mustApply(t, append(stage{}.updates(), listingAt("gw", "cali1", "10.0.9.1", "203.0.113.0/24"), listingAt("next", "cali2", "10.0.9.2"))...)
	judged := func(what string, again bool) {
		t.Helper()
		before := n.state.static.generation.number
		n.paths().cost = 0
		for range flowsEvery {
			if _, err := n.Sweep(); err != nil {
				t.Fatal(err)
			}
		}
		n.mustApply(t)
		if got := n.state.static.generation.number != before; got != again {
			t.Errorf("%s: judged again: %v, want %v", what, got, again)
		}
	}
	judged("no routes", false)
	n.routes = routeTo("cali1", "203.0.113.7/32")
	judged("a route", true)
	judged("the same route", false)
	readable := n.paths().routes
	n.paths().routes = func(map[string]bool) ([]further.Route, error) { return nil, errRefused }
	n.routes = routeTo("cali1", "203.0.113.8/32")
	judged("a route that cannot be read", false)
	n.paths().routes = readable
	judged("a route that can be read again", true)
	n.routes = nil
	judged("no route any more", true)
	n.mustApply(t, listingAt("gw", "cali1", "10.0.9.1"))
	n.routes = routeTo("cali1", "203.0.113.7/32")
	judged("nothing is listed", false)
}

// paths is what the dataplane knows of the routes to its endpoints.
func (n *fakeNode) paths() *rerouted { return n.state.endpoints.routes }
