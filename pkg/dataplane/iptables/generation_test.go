package iptables

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/pkg/compile/chains"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/model"
)

// mark is that of a connection that policy of a generation has allowed.
func (n *fakeNode) mark(t *testing.T, generation uint32) uint32 {
	t.Helper()
	v, err := n.state.static.base.Marks.Generation(generation)
	if err != nil {
		t.Fatal(err)
	}
	return v.Value
}

// changed applies another policy than before.
func (n *fakeNode) changed(port uint16) error {
	next := narrow
	next.ports = []uint16{port}
	return n.apply(next.updates()...)
}

// wantMarks demands that connections have these marks.
func (n *fakeNode) wantMarks(t *testing.T, when string, want ...uint32) {
	t.Helper()
	if len(n.flows.marks) != len(want) {
		t.Fatalf("%s: %d connections, want %d", when, len(n.flows.marks), len(want))
	}
	for i, mark := range n.flows.marks {
		if mark != want[i] {
			t.Errorf("%s: connection %d has the mark %#x, want %#x", when, i, mark, want[i])
		}
	}
}

// When generations go on in the other half of the numbers, no connection keeps a mark of the half that they leave: neither if the kernel
// refuses at first to replace marks, nor one that a packet gets in the last moment. Marks of the half that they come to stay.
func TestNoMarkOutlivesItsHalfOfTheGenerations(t *testing.T) {
	n := newFakeNode(t)
	n.mustApply(t, narrow.updates()...)
	g := &n.state.static.generation
	half := g.most / 2
	again, lone := n.mark(t, chains.ToBeJudged), n.state.static.base.Marks.Lone().Value
	for _, leaves := range []uint32{half, g.most} {
		next := half + 1
		if leaves == g.most {
			next = chains.FirstGeneration
		}
		g.number = leaves
		old, denied := n.mark(t, leaves-5), n.mark(t, leaves-6)&^(1<<31) // without the flag passed
		last, fresh := n.mark(t, leaves), n.mark(t, next)
		n.flows.marks = []uint32{old, denied, 0, lone, fresh}
		calls := 0
		n.flows.marking = func() error {
			if calls++; calls == 1 {
				n.flows.marks = append(n.flows.marks, last) // by chains that packets are in until they were waited for
				return errors.New("no buffer")
			}
			return nil
		}
		if err := n.changed(uint16(leaves)); err != nil {
			t.Fatal(err) // the change is enforced all the same
		}
		if g.number != next || !g.former {
			t.Fatalf("after %d comes %d, and marks are to be replaced: %t", leaves, g.number, g.former)
		}
		n.mustApply(t)
		if g.former || calls < 4 { // IPv4 and IPv6, twice
			t.Errorf("marks are still to be replaced, after %d attempts", calls)
		}
		n.wantMarks(t, "after the first half", again, again, 0, lone, fresh, again)
		if c, why := n.condition("a"); c != dataplane.Enforced {
			t.Errorf("%v: %s", c, why)
		}
	}
}

// No change waits while marks are replaced in a large table, which takes seconds, until the numbers of a half are used up.
func TestChangesDoNotWaitForMarks(t *testing.T) {
	n := newFakeNode(t)
	n.beside = true
	n.mustApply(t, narrow.updates()...)
	g := &n.state.static.generation
	half := g.most / 2
	g.number = half
	replacing, goOn, calls := make(chan struct{}), make(chan struct{}), 0
	n.flows.marking = func() error {
		if calls++; calls > 2 { // IPv4 and IPv6 of the first replacement
			return nil
		}
		late := time.After(patience)
		select {
		case replacing <- struct{}{}:
		case <-late:
			return errors.New("a change waits for the replacement")
		}
		select {
		case <-goOn:
		case <-late:
		}
		return nil
	}
	for port := range uint16(5) {
		if err := n.changed(1000 + port); err != nil {
			t.Fatal(err)
		}
		if port == 0 {
			select {
			case <-replacing:
			case <-time.After(patience):
				t.Fatal("no marks are replaced")
			}
		}
	}
	if g.number != half+5 || g.replacing == nil || !g.former {
		t.Errorf("generation %d after 5 changes beside a replacement, want %d; %+v", g.number, half+5, g)
	}
	go func() {
		goOn <- struct{}{}
		<-replacing
		goOn <- struct{}{}
	}()
	g.number = g.most
	if err := n.changed(2000); err != nil { // waits
		t.Fatal(err)
	}
	if g.number != chains.FirstGeneration {
		t.Errorf("generation %d after the last one", g.number)
	}
	g.wait()
}

// Without a replacement that has succeeded, the numbers of the other half are not used: the change waits, and says why.
func TestNoGenerationIsUsedThatConnectionsMayHave(t *testing.T) {
	n := newFakeNode(t)
	n.mustApply(t, narrow.updates()...)
	g := &n.state.static.generation
	g.number, g.former = g.most, true
	refused := errors.New("no buffer")
	n.flows.marking = func() error { return refused }
	if err := n.changed(2000); !errors.Is(err, refused) {
		t.Fatalf("%v, want %v", err, refused)
	}
	if g.number != g.most {
		t.Errorf("generation %d is used", g.number)
	}
	stale := n.mark(t, chains.FirstGeneration)
	n.flows.marks, n.flows.marking = []uint32{stale}, nil
	n.mustApply(t)
	if g.number != chains.FirstGeneration {
		t.Errorf("generation %d, want the first", g.number)
	}
	n.wantMarks(t, "before the first number is used", n.mark(t, chains.ToBeJudged))
}

// The transaction that goes to the other half fails, as while somebody else has the lock. The chains in force still write the last number of
// their half then, so marks with numbers of that are replaced only after it.
func TestMarksStayWhileTheChainsInForceWriteThem(t *testing.T) {
	n := nodeWithALateClass(t)
	g := &n.state.static.generation
	g.number = g.most / 2
	if err := errors.Join(n.state.static.rewrite(), n.state.commit()); err != nil {
		t.Fatal(err)
	}
	late := n.mark(t, g.number)
	n.tables.Lock(true)
	if err := n.apply(); err == nil || g.number != g.most/2+1 {
		t.Fatalf("the class of the node's address is followed with generation %d, and the lock of others: %v", g.number, err)
	}
	if !g.former {
		t.Error("marks have been replaced before the chains in force are others")
	}
	n.flows.marks = []uint32{late}
	n.tables.Lock(false)
	n.mustApply(t)
	n.mustApply(t)
	n.wantMarks(t, "after the lock", n.mark(t, chains.ToBeJudged))
}

// A packet may have left the chains with a mark of the half that is left, while its connection is not in the kernel's table yet. It is waited
// for although no packet is left in the former chains.
func TestAPacketBehindTheChainsKeepsNoFormerMark(t *testing.T) {
	n := newFakeNode(t)
	n.mustApply(t, narrow.updates()...)
	g := &n.state.static.generation
	g.number = g.most / 2
	last := n.mark(t, g.number)
	n.state.world.unseen.awaited = true // transactions have waited
	n.state.world.unseen.waiting = func(context.Context) error {
		n.flows.marks = []uint32{last}
		return nil
	}
	if err := n.changed(1000); err != nil {
		t.Fatal(err)
	}
	n.wantMarks(t, "after the first half", n.mark(t, chains.ToBeJudged))
}

// However often a change is tried while somebody else has the lock, it uses one number. Else attempts could use up a half, while the chains in
// force still write a number of the other one.
func TestAttemptsUseNoGenerations(t *testing.T) {
	held, killed := &iptables.LockedError{Path: "fake"}, errors.New("killed")
	refused := &iptables.RefusedError{}
	for unclear := range uint32(2) { // attempts that the kernel may have carried out: their number is used
		n := newFakeNode(t)
		n.mustApply(t, narrow.updates()...)
		g := &n.state.static.generation
		before := g.number
		fails := []error{killed, held, held, refused, held, refused}[1-unclear:]
		for _, err := range fails {
			if n.tables.Fail(err); err == refused {
				n.tables.Fail(err) // a table that was refused is read and tried once more
			}
		}
		updates := []model.Update{model.EndpointUpdate{ID: model.WorkloadID("t", "a1")}}
		for i, want := range fails {
			if err := n.apply(updates...); !errors.Is(err, want) {
				t.Fatalf("attempt %d: %v, want %v", i, err, want)
			}
			updates = nil
		}
		n.mustApply(t)
		if used := g.number - before; used != 1+unclear {
			t.Errorf("%d generations are used, with %d attempts that may have been carried out", used, unclear)
		}
		if stamp := fmt.Sprintf("--set-xmark %#x/", n.mark(t, g.number)); !strings.Contains(n.tables.Save(iptables.V4, "mangle"), stamp) {
			t.Errorf("the chains do not write generation %d", g.number)
		}
		before = g.number
		if err := n.changed(2000); err != nil || g.number != before+1 {
			t.Errorf("the next change has generation %d after %d: %v", g.number, before, err)
		}
	}
}

// While marks cannot be replaced, each Apply says so, also when the next attempt has begun: else the agent would report by turns that policy
// is enforced and that it is not.
func TestAFailingReplacementIsReportedUntilItSucceeds(t *testing.T) {
	n := newFakeNode(t)
	n.beside = true
	n.mustApply(t, narrow.updates()...)
	g := &n.state.static.generation
	g.number = g.most / 2
	ended := func() {
		if g.replacing != nil {
			err := <-g.replacing
			g.replacing <- err
		}
	}
	refused := errors.New("no buffer")
	n.flows.marking = func() error { return refused }
	if err := n.changed(1000); err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		ended()
		if err := n.apply(); !errors.Is(err, refused) {
			t.Errorf("Apply %d: %v, want %v", i, err, refused)
		}
	}
	ended()
	n.flows.marking = nil
	for range 3 { // the end of an attempt that has failed, another attempt, its end
		_ = n.apply()
		ended()
	}
	n.mustApply(t)
	if g.former {
		t.Error("marks are still to be replaced")
	}
}
