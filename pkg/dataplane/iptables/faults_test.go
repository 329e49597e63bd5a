package iptables

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/ipsets"
	"github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/model"
)

// condition returns that of an endpoint, with its reason.
func (n *fakeNode) condition(name string) (dataplane.Condition, string) {
	for _, e := range n.Endpoints() {
		if e.ID == model.WorkloadID("t", name) {
			return e.Condition, e.Reason
		}
	}
	return 0, "there is no such endpoint"
}

// An endpoint for which the kernel has no room in one of its sets is closed and reported. All others get their policy, and it gets
// its own once there is room.
func TestAnEndpointWithoutRoomInASetAffectsNoOther(t *testing.T) {
	for _, set := range []string{"mgyA4-in", "mgyA4-eg", "mgyA4-own"} {
		for _, why := range []error{ipsets.ErrCrowded, ipsets.ErrFull} {
			n := newFakeNode(t)
			n.sets.Refuse = func(to string, c ipsets.Change) error {
				if to == set && c.Key.Interface == "cali1" && !c.Remove {
					return why
				}
				return nil
			}
			err := n.apply(wide.updates()...)
			held, ok := errors.AsType[*dataplane.HeldBack](err)
			if !ok || !held.Retry || !errors.Is(err, why) || !strings.Contains(err.Error(), "t/a1") || strings.Contains(err.Error(), "t/a2") {
				t.Fatalf("%s: %v", set, err)
			}
			for i, want := range []dataplane.Condition{dataplane.Enforced, dataplane.Failed, dataplane.Enforced, dataplane.Enforced} {
				if got, reason := n.condition(fmt.Sprintf("a%d", i)); got != want || (got == dataplane.Failed) != strings.Contains(reason, why.Error()) {
					t.Errorf("%s: endpoint a%d is %v (%s), want %v", set, i, got, reason, want)
				}
			}
			if k := keys(n.state.endpoints.bound[model.WorkloadID("t", "a1")].policy)[0]; n.has("mgyA4-own", k) {
				t.Errorf("%s: the endpoint is open", set)
			}
			if stats := n.Stats(false); stats.Failed != 1 || stats.Enforced != 4 {
				t.Errorf("%s: %d failed and %d enforced endpoints", set, stats.Failed, stats.Enforced)
			}
			n.sets.Refuse = nil
			n.mustApply(t)
			if got, reason := n.condition("a1"); got != dataplane.Enforced {
				t.Errorf("%s: once there is room the endpoint is %v (%s)", set, got, reason)
			}
			n.sets.Refuse = func(string, ipsets.Change) error { return nil }
			n.mustApply(t, model.EndpointUpdate{ID: model.WorkloadID("t", "a1")})
			if n.has("mgyA4-in", ipsets.Key{Prefix: single(netip.MustParseAddr("10.0.2.2")), Interface: "cali1"}) {
				t.Errorf("%s: an entry of the endpoint is left", set)
			}
		}
	}
}

// An endpoint that leaves while an entry of it is refused leaves none behind.
func TestARefusedEndpointThatLeavesLeavesNothing(t *testing.T) {
	n := newFakeNode(t)
	n.sets.Refuse = func(to string, c ipsets.Change) error {
		if to == "mgyA4-eg" && c.Key.Interface == "cali1" && !c.Remove {
			return ipsets.ErrFull
		}
		return nil
	}
	if err := n.apply(wide.updates()...); !errors.Is(err, ipsets.ErrFull) {
		t.Fatal(err)
	}
	n.mustApply(t, model.EndpointUpdate{ID: model.WorkloadID("t", "a1")})
	for _, set := range []string{"mgyA4-in", "mgyA4-eg", "mgyA4-own"} {
		if n.has(set, ipsets.Key{Prefix: single(netip.MustParseAddr("10.0.2.2")), Interface: "cali1"}) {
			t.Errorf("an entry is left in %s", set)
		}
	}
}

func (n *fakeNode) has(set string, k ipsets.Key) bool {
	found := false
	for _, s := range n.state.sets.all() {
		if s.Spec().Name == set {
			_ = n.sets.List(s.Spec(), func(e ipsets.Entry) { found = found || e.Key == k })
		}
	}
	return found
}

// The kernel has no memory for a write, whichever it is: Apply says so, and makes up for it.
func TestTheKernelMayBeOutOfMemoryOnce(t *testing.T) {
	want := newFakeNode(t)
	want.mustApply(t, narrow.updates()...)
	want.mustApply(t, wide.updates()...)
	want.mustApply(t)
	for number := 1; number < 60; number++ {
		n := newFakeNode(t)
		n.mustApply(t, narrow.updates()...)
		count, failed := 0, false
		n.sets.Refuse = func(string, ipsets.Change) error {
			if count++; count == number {
				failed = true
				return unix.ENOMEM
			}
			return nil
		}
		err := n.apply(wide.updates()...)
		if n.sets.Refuse = nil; !failed {
			return
		}
		if !errors.Is(err, unix.ENOMEM) {
			t.Errorf("write %d: %v", number, err)
		}
		n.state.refusals.Retry.Room()
		for range 3 {
			if err = n.apply(); err == nil {
				break
			}
		}
		if got := normal(n.contents(t)); err != nil || got != normal(want.contents(t)) {
			t.Fatalf("after write %d had no memory: %v\n%s", number, err, got)
		}
	}
	t.Error("not all writes were tried")
}

// While somebody holds the lock of iptables, what is in force stays, new endpoints stay closed, and the error names who it is. Once it
// is free, the next look has the change applied.
func TestTheLockOfIPTablesIsHeld(t *testing.T) {
	n := newFakeNode(t)
	node := &wokenNode{}
	n.kernel.Node = node
	n.mustApply(t, narrow.updates()...)
	n.Resync() // so that nothing is to be looked at again
	n.mustApply(t)
	node.nudges = 0
	before := n.tables.Save(iptables.V4, "mangle")
	n.tables.Lock(true)
	next := narrow
	next.ports = []uint16{443}
	err := n.apply(append(next.updates(), endpointAt("new", "cali7", "10.0.7.1", map[string]string{"app": "x"}))...)
	if _, locked := errors.AsType[*iptables.LockedError](err); !locked {
		t.Fatalf("while the lock is held Apply says %v", err)
	}
	if n.tables.Save(iptables.V4, "mangle") != before {
		t.Error("chains were written while the lock was held")
	}
	if n.has("mgyA4-own", ipsets.Key{Prefix: single(netip.MustParseAddr("10.0.7.1")), Interface: "cali7"}) {
		t.Error("a new endpoint is open before its policy is there")
	}
	for range 3 {
		if _, err := n.Sweep(); err != nil {
			t.Error(err)
		}
	}
	if node.nudges > 0 {
		t.Error("woken while the lock is held")
	}
	n.tables.Lock(false)
	if _, err := n.Sweep(); err != nil || node.nudges != 1 {
		t.Errorf("woken %d times once the lock is free, %v", node.nudges, err)
	}
	n.mustApply(t)
	if got, reason := n.condition("new"); got != dataplane.Enforced || !strings.Contains(n.tables.Save(iptables.V4, "mangle"), "--dport 443") {
		t.Errorf("afterwards the new endpoint is %v (%s)", got, reason)
	}
}

// A repair waits no longer for the lock than a change of policy does: the context of Apply has no end.
func TestARepairDoesNotWaitUntilTheLockIsFree(t *testing.T) {
	n := newFakeNode(t)
	n.mustApply(t, narrow.updates()...)
	n.Resync() // so that the chains are known
	n.mustApply(t)
	if err := n.tables.Load(iptables.V4, "*mangle\n-F mgyA-deny\nCOMMIT\n"); err != nil {
		t.Fatal(err)
	}
	n.tables.Lock(true)
	n.Resync()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // of a test that fails
	defer cancel()
	err := n.Apply(ctx, n.graph.Flush())
	if _, locked := errors.AsType[*iptables.LockedError](err); !locked || ctx.Err() != nil {
		t.Fatalf("while the lock is held Apply says %v; its context: %v", err, ctx.Err())
	}
	n.tables.Lock(false)
	n.mustApply(t)
	if !strings.Contains(n.tables.Save(iptables.V4, "mangle"), "-A mgyA-deny ") {
		t.Error("the chain is not repaired once the lock is free")
	}
}

// wokenNode counts how often it is nudged at once.
type wokenNode struct {
	quietNode
	nudges int
}

func (n *wokenNode) Nudge(after time.Duration) {
	if after == 0 {
		n.nudges++
	}
}
