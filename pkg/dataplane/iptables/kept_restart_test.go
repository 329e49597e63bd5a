package iptables

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/pkg/calc"
)

// An agent that starts where existing connections are kept goes on with the judgements in force. The connections of addresses and
// further sources whose owner has changed while no agent ran end before packets go to its chains, and once more after.
func TestARestartKeepsConnections(t *testing.T) {
	n := newFakeNode(t)
	n.keep = true
	n.open(t)
	n.routes = routeTo("cali1", "203.0.113.0/24")
	before := append(stage{}.updates(), listingAt("gw", "cali1", "10.0.9.1", "203.0.113.0/24"), endpointAt("old", "cali2", "10.0.9.2", nil), endpointAt("gone", "cali3", "10.0.9.3", nil))
	n.mustApply(t, before...)
	generation := n.state.static.generation.number
	all := []string{"10.0.0.10", "10.0.9.1", "10.0.9.2", "10.0.9.3", "10.0.9.4", "203.0.113.7", "8.8.8.8"}
	for _, what := range []string{"a restart", "another restart", "a new configuration"} {
		n.connect(all...)
		if what == "a new configuration" {
			n.reopen(t)
		} else {
			n.open(t)
		}
		n.mustApply(t, before...)
		n.wantGone(t, what, all)
		if n.state.static.generation.number != generation {
			t.Errorf("%s: generation %d, want %d", what, n.state.static.generation.number, generation)
		}
	}
	mark, err := n.state.static.base.Marks.Generation(generation)
	if err != nil {
		t.Fatal(err)
	}
	n.flows.marks = []uint32{mark.Value}
	n.open(t)
	former, _ := n.worlds(t)
	var ends []string // the worlds that packets go to when connections end
	n.flows.ending = func() error {
		inForce, _ := n.worlds(t)
		if world := strings.Join(inForce, " "); !slices.Contains(ends, world) {
			ends = append(ends, world)
			n.connect(all...) // the former owners have begun connections again until now
		}
		return nil
	}
	n.mustApply(t, append(stage{}.updates(), listingAt("gw", "cali1", "10.0.9.1"), endpointAt("heir", "cali4", "10.0.9.2", nil), endpointAt("new", "cali5", "10.0.9.4", nil))...)
	n.wantGone(t, "after a change while no agent ran", all, "10.0.9.2", "10.0.9.3", "10.0.9.4", "203.0.113.7")
	if now, _ := n.worlds(t); !slices.Equal(ends, []string{former[0], now[0]}) {
		t.Errorf("connections end while packets go to %v, want %v and then %v", ends, former, now)
	}
	if n.flows.marks[0] != mark.Value {
		t.Errorf("the mark of a connection that is kept became %#x", n.flows.marks[0])
	}

	n.flows.ending = nil
	n.keep = false
	n.open(t)
	n.mustApply(t, before...)
	if n.state.static.generation.number == generation {
		t.Error("live connections are not judged again although they are not to be kept")
	}
	n.wantGone(t, "an agent that does not keep connections", all, "10.0.9.2", "10.0.9.3", "10.0.9.4")
}

// An agent that cannot end the connections of former owners once packets go to its chains does so with the next Apply, also if the dataplane
// is reopened before, as after some failures.
func TestConnectionsOfFormerOwnersEndWithTheNextAttempt(t *testing.T) {
	for _, reopened := range []bool{false, true} {
		n := newFakeNode(t)
		n.keep = true
		n.open(t)
		n.mustApply(t, append(stage{}.updates(), endpointAt("old", "cali2", "10.0.9.2", nil))...)
		former, _ := n.worlds(t)
		n.open(t)
		n.flows.ending = func() error {
			if inForce, _ := n.worlds(t); !slices.Equal(inForce, former) {
				return errRefused
			}
			return nil
		}
		updates := append(stage{}.updates(), endpointAt("heir", "cali4", "10.0.9.2", nil))
		if err := n.apply(updates...); !errors.Is(err, errRefused) {
			t.Fatalf("Apply: %v", err)
		}
		n.connect("10.0.9.2", "8.8.8.8")
		n.flows.ending = nil
		if reopened {
			n.reopen(t)
			n.mustApply(t, updates...)
		}
		n.mustApply(t)
		n.wantGone(t, fmt.Sprintf("after the next attempt, reopened: %t", reopened), []string{"10.0.9.2", "8.8.8.8"}, "10.0.9.2")
		n.mustApply(t)
		n.wantGone(t, "after a third", []string{"10.0.9.2", "8.8.8.8"})
	}
}

// reopen has the dataplane begin another world, for everything that is desired.
func (n *fakeNode) reopen(t *testing.T) {
	t.Helper()
	if err := n.Reopen(); err != nil {
		t.Fatal(err)
	}
	n.state.world.unseen.waiting = func(context.Context) error { return nil }
	n.state.endpoints.heirs.patience = time.Minute
	n.graph = calc.New("n")
}

// An agent goes on with the judgements in force only if both IP versions have the same generation: a killed agent may have moved one of them on. With
// another number, marks of one version would have a verdict of the other's policy.
func TestGenerationsThatDifferAreNotContinued(t *testing.T) {
	for _, differ := range []uint32{0, 1} {
		n := newFakeNode(t)
		n.keep = true
		n.open(t)
		n.mustApply(t, stage{}.updates()...)
		generation := n.state.static.generation.number
		n.stamp(t, 6, generation+differ)
		n.open(t)
		want := generation + 2*differ // the one after both
		if got := n.state.static; got.resumed != (differ == 0) || got.generation.number != want {
			t.Errorf("generations %d and %d: continued: %t, with %d, want %d", generation, generation+differ, got.resumed, got.generation.number, want)
		}
	}
}

// A dataplane that is reopened, as for another configuration, ends the connections of a further source that the node has routed elsewhere before:
// whether a look has noticed that or not, and also if the world begun first never comes in force.
func TestAReopenedDataplaneKnowsTheRoutesOfBefore(t *testing.T) {
	for _, noticed := range []bool{true, false} {
		for _, worlds := range []int{1, 2} {
			n := newFakeNode(t)
			n.keep = true
			n.open(t)
			n.routes = routeTo("cali1", "203.0.113.0/24")
			updates := append(stage{}.updates(), listingAt("gw", "cali1", "10.0.9.1", "203.0.113.0/24"), listingAt("next", "cali2", "10.0.9.2", "203.0.113.0/24"))
			n.mustApply(t, updates...)
			all := []string{"203.0.113.7", "8.8.8.8"}
			n.connect(all...)
			n.routes = routeTo("cali2", "203.0.113.0/24")
			if noticed && !n.state.kept.look(time.Now) {
				t.Fatal("the change of the route is not noticed: the test tests nothing")
			}
			for range worlds {
				n.reopen(t)
			}
			n.mustApply(t, updates...)
			n.routed(t, n.routes)
			n.wantGone(t, fmt.Sprintf("noticed: %t, %d worlds", noticed, worlds), all, "203.0.113.7")
			n.routed(t, n.routes)
			n.wantGone(t, "later", all)
		}
	}
}

// An agent that starts reads the further sources in force as its predecessor has listed them, so it searches no connections if none has changed.
func TestARestartWithoutChangesSearchesNoConnections(t *testing.T) {
	n := newFakeNode(t)
	n.keep = true
	n.open(t)
	n.routes = routeTo("cali1", "203.0.113.0/24")
	updates := append(stage{}.updates(), listingAt("gw", "cali2", "10.0.9.1", "2001:db8::/32", "203.0.113.0/24", "198.51.100.0/24"),
		listingAt("wide", "cali1", "10.0.9.2", "203.0.113.7/32", "::/0", "0.0.0.0/0"), listingAt("high", "cali3", "10.0.9.3", "128.0.0.0/1", "fe00::/9"))
	n.mustApply(t, updates...)
	want := n.state.endpoints.sources.all(n.state.endpoints.bound)
	n.flows.ending = func() error { t.Error("connections are searched"); return nil }
	n.open(t)
	if got := n.state.kept.listed; !slices.Equal(got, want) {
		t.Errorf("the further sources in force are %v, want %v", got, want)
	}
	n.mustApply(t, updates...)
	n.mustApply(t)
}
