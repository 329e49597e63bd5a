package iptables

import (
	"context"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/ipsets"
	"github.com/margay-project/margay/pkg/iptables"
)

// TestRemoveLeavesNothing: not of the world in force, and not of one that an agent has begun and not finished; what others have
// stays, their bits of marks too.
func TestRemoveLeavesNothing(t *testing.T) {
	n := newFakeNode(t)
	n.mustApply(t, stage{role: "x", allow: []string{"x"}, ports: []uint16{80}}.updates()...)
	n.open(t)
	if err := n.state.begin(); err != nil {
		t.Fatal(err)
	}
	if _, there := n.worlds(t); len(there) != 2 {
		t.Fatalf("there are the worlds %v, want both", there)
	}
	n.flows.marks = []uint32{0x00020000, 0x80020001, 0x00000001}
	remove := func() Removed {
		done, err := Remove(context.Background(), []*iptables.Tools{n.tables.Tools(iptables.Legacy)}, n.sets, n.flows)
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	if done := remove(); done.Chains == 0 || done.Sets == 0 || done.Connections != 2 {
		t.Errorf("removed %+v", done)
	}
	for _, table := range tableNames {
		for _, family := range families {
			if saved := n.tables.Save(iptables.Family(family), table); strings.Contains(saved, "mgy") {
				t.Errorf("table %s of IPv%d still has chains:\n%s", table, family, saved)
			}
		}
	}
	if found, err := Found(n.sets); found || err != nil {
		t.Errorf("sets are still there: %v, %v", found, err)
	}
	for i, m := range n.flows.marks {
		if want := []uint32{0, 1, 1}[i]; m != want {
			t.Errorf("connection %d has the mark %#x, want %#x", i, m, want)
		}
	}
	if done := remove(); done != (Removed{}) {
		t.Errorf("the second time it removes %+v", done)
	}
}

// Bits on either side of the mask belong to others.
func TestRemoveLeavesTheBitsOfOthers(t *testing.T) {
	n := &fakeNode{tables: iptables.NewFake(), sets: ipsets.NewFake(), flows: &fakeFlows{}, mask: 0x0fff0000}
	n.open(t)
	n.mustApply(t, narrow.updates()...)
	n.flows.marks = []uint32{0x30000001, 0xc0000000, 0xffffffff}
	if _, err := Remove(t.Context(), []*iptables.Tools{n.tables.Tools(iptables.Legacy)}, n.sets, n.flows); err != nil {
		t.Fatal(err)
	}
	for i, want := range []uint32{0x30000001, 0xc0000000, 0xf000ffff} {
		if got := n.flows.marks[i]; got != want {
			t.Errorf("connection %d has the mark %#x, want %#x", i, got, want)
		}
	}
}
