package iptables

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/compile/chains"
	"github.com/margay-project/margay/pkg/iptables"
)

// stamp writes a generation into the chains of the world in force of one IP version, as if they had not been written since.
func (n *fakeNode) stamp(t *testing.T, family uint8, generation uint32) {
	t.Helper()
	stamp, err := n.state.static.base.Marks.Generation(generation)
	if err != nil {
		t.Fatal(err)
	}
	chain := n.state.world.names[family].Chain("allow")
	text := fmt.Sprintf("*mangle\n:%[1]s - [0:0]\n-A %[1]s -j CONNMARK --set-xmark %[2]v\nCOMMIT\n", chain, stamp)
	if err := n.tables.Load(iptables.Family(family), text); err != nil {
		t.Fatal(err)
	}
}

// wantJudgedAgain demands that no connection of before has the mark of the generation in force, nor gets one by the next changes.
func (n *fakeNode) wantJudgedAgain(t *testing.T, when string) {
	t.Helper()
	for port := range uint16(8) {
		current := n.mark(t, n.state.static.generation.number)
		for i, mark := range n.flows.marks {
			if mark == current {
				t.Errorf("%s, after %d changes: connection %d passes with the mark %#x, though policy has not allowed it", when, port, i, mark)
			}
		}
		if err := n.changed(3000 + port); err != nil {
			t.Fatal(err)
		}
	}
}

// flushed are transactions that take all jumps away.
var flushed = []string{"*raw\n-F PREROUTING\nCOMMIT\n", "*mangle\n-F FORWARD\n-F INPUT\n-F OUTPUT\n-F PREROUTING\n-F POSTROUTING\nCOMMIT\n", "*filter\n-F FORWARD\n-F INPUT\nCOMMIT\n"}

// The chains of one IP version are flushed while no agent runs. Those of the other, which no endpoint uses, have a number of long ago. The
// successor uses no number again that connections have got since.
func TestNoGenerationIsUsedAgainAfterAFlush(t *testing.T) {
	for _, family := range families {
		t.Run(fmt.Sprintf("IPv%d", family), func(t *testing.T) {
			n := newFakeNode(t)
			n.mustApply(t, narrow.updates()...)
			first := n.state.static.generation.number
			for port := range uint16(5) {
				if err := n.changed(1000 + port); err != nil {
					t.Fatal(err)
				}
			}
			if family == 6 { // as if only endpoints with IPv6 addresses had been there
				n.stamp(t, 4, first)
			}
			n.flows.marks = nil
			for number := first; number <= n.state.static.generation.number; number++ {
				n.flows.marks = append(n.flows.marks, n.mark(t, number))
			}
			for _, transaction := range flushed {
				if err := n.tables.Load(iptables.Family(family), transaction); err != nil {
					t.Fatal(err)
				}
			}
			n.open(t)
			n.mustApply(t, narrow.updates()...)
			n.wantJudgedAgain(t, "after a start")
		})
	}
}

// A successor whose marks have the same bits goes from world to world with the jumps of table filter in place, wherever it is
// stopped: what is not judged is dropped there.
func TestFilterKeepsItsJumpsAfterAFlush(t *testing.T) {
	for stop := 0; ; stop++ {
		n := newFakeNode(t)
		n.mustApply(t, narrow.updates()...)
		for _, transaction := range flushed {
			if err := n.tables.Load(iptables.V4, transaction); err != nil {
				t.Fatal(err)
			}
		}
		n.open(t)
		if !n.state.static.foreign {
			t.Fatal("marks of IPv4 are taken for those of the generation in force")
		}
		n.tables.Fail(append(make([]error, stop), errors.New("killed"))...)
		err := n.apply(narrow.updates()...)
		if saved := n.tables.Save(iptables.V6, "filter"); !strings.Contains(saved, "-A FORWARD") {
			t.Errorf("stopped at transaction %d (%v): IPv6 has no jump in table filter\n%s", stop, err, saved)
		}
		if err == nil {
			if stop < 4 {
				t.Errorf("a start has %d transactions", stop)
			}
			return
		}
	}
}

// An agent is killed between the transactions of the IP versions which leave a half of the numbers. The greatest number found is not the
// last one then.
func TestNoGenerationIsUsedAgainAfterACrossingHalfway(t *testing.T) {
	n := newFakeNode(t)
	n.mustApply(t, narrow.updates()...)
	g := &n.state.static.generation
	half := g.most / 2
	g.number = half
	if err := n.changed(1000); err != nil { // both IP versions have the first number of the upper half
		t.Fatal(err)
	}
	n.mustApply(t)
	g.number = g.most
	n.flows.marks = []uint32{n.mark(t, half+2), n.mark(t, half+5), n.mark(t, g.most)}
	n.tables.Fail(nil, errors.New("killed"))
	if err := n.changed(2000); err == nil || g.number != chains.FirstGeneration {
		t.Fatalf("the crossing has got generation %d, and fails with %v", g.number, err)
	}
	n.open(t)
	n.mustApply(t, narrow.updates()...)
	n.wantJudgedAgain(t, "after a start")
}

// A successor begins with a number that no world in force writes, and knows the restart of a complete world: it leaves marks of that alone.
func TestASuccessorBeginsWithANumberOfItsOwn(t *testing.T) {
	n := newFakeNode(t)
	most := n.state.static.generation.most
	for _, of := range []struct {
		ipv4, ipv6, want uint32
		foreign          bool
	}{
		{4, 2, 5, false},
		{most / 2, 3, most/2 + 1, true},
		{chains.FirstGeneration, most, chains.FirstGeneration + 1, true},
	} {
		n := newFakeNode(t)
		n.mustApply(t, narrow.updates()...)
		n.stamp(t, 4, of.ipv4)
		n.stamp(t, 6, of.ipv6)
		n.open(t)
		if s := n.state.static; s.generation.number != of.want || s.foreign != of.foreign {
			t.Errorf("after %d and %d: generation %d, want %d; all marks are cleared: %t, want %t",
				of.ipv4, of.ipv6, s.generation.number, of.want, s.foreign, of.foreign)
		}
	}
}

// A successor replaces the marks of the half that is not in use: its predecessor may have been killed before it had.
func TestASuccessorReplacesMarksOfTheOtherHalf(t *testing.T) {
	n := newFakeNode(t)
	n.mustApply(t, narrow.updates()...)
	g := &n.state.static.generation
	stale, current := n.mark(t, g.most-1), n.mark(t, g.number)
	n.flows.marks = []uint32{stale, current}
	n.open(t)
	n.mustApply(t, narrow.updates()...)
	n.wantMarks(t, "after a restart", n.mark(t, chains.ToBeJudged), current)
	if n.state.static.generation.former {
		t.Error("marks are still to be replaced")
	}
}

// Marks of other agents are cleared for the last time when no packet is left on its way from their chains to the kernel's table.
func TestAPacketBehindTheChainsKeepsNoForeignMark(t *testing.T) {
	n := newFakeNode(t)
	n.mustApply(t, narrow.updates()...)
	n.stamp(t, 4, n.state.static.generation.most)
	n.open(t)
	foreign := n.mark(t, n.state.static.generation.most)
	n.state.world.unseen.awaited = true
	n.state.world.unseen.waiting = func(context.Context) error {
		if n.state.world.inForce && n.flows.marks == nil {
			n.flows.marks = []uint32{foreign}
		}
		return nil
	}
	n.mustApply(t, narrow.updates()...)
	n.wantMarks(t, "after a start", 0)
}
