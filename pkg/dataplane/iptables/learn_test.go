package iptables

import (
	"strings"
	"testing"
)

// A class that goes and comes again has the number and the row that it had, of which the plan says nothing: its chains went with
// it, and have to come again.
func TestAClassThatComesAgainHasItsChains(t *testing.T) {
	want := newFakeNode(t)
	want.mustApply(t, wide.updates()...)
	for range 3 {
		want.mustApply(t)
	}
	n := newFakeNode(t)
	n.mustApply(t, wide.updates()...)
	gone := wide
	gone.role = "nobody"
	for range 3 {
		n.mustApply(t, gone.updates()...)
		for range 4 {
			n.mustApply(t)
		}
		n.mustApply(t, wide.updates()...)
		for range 4 {
			n.mustApply(t)
		}
	}
	if got := normal(n.contents(t)); got != normal(want.contents(t)) {
		t.Errorf("after a class has come again:\n%s\nwant:\n%s", got, normal(want.contents(t)))
	}
}

// A policy that has no room for another class denies it, and nobody else's changes wait for that.
func TestAPolicyWithoutRoomForAClassDelaysNothing(t *testing.T) {
	n := newFakeNode(t)
	before := wide
	before.role = "nobody"
	n.mustApply(t, before.updates()...)
	n.state.slots.options[4].MaxRules = 1
	after := wide
	after.more++ // an endpoint that has nothing to do with it
	if err := n.apply(after.updates()...); err == nil {
		t.Error("there is no room, and Apply says nothing")
	}
	if got := n.contents(t); !strings.Contains(got, "mgyA4-in 10.0.2.5/32,cali4 ") || !strings.Contains(got, "mgyA4-class 10.0.0.1/32 ") {
		t.Errorf("the rest of the plan was not carried out:\n%s", got)
	}
	if got := n.contents(t); strings.Count(got, "--dport 443") != 1 {
		t.Errorf("there is room for the class:\n%s", got)
	}
	n.state.slots.options[4].MaxRules = 0
	n.state.refusals.Retry.Room()
	for range 4 {
		_ = n.apply()
	}
	n.mustApply(t)
	if got := n.contents(t); strings.Count(got, "--dport 443") != 2 {
		t.Errorf("there is room, and the class is still denied:\n%s", got)
	}
}
