package bpf

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/dataplane/plans"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// crowd are pods of the tenant on other nodes that are all in other sets: bit i of a pod's number is a label that rule i of the policy of
// evil/m selects. gone: all of it goes.
func crowd(pods int, gone bool) []model.Update {
	updates := tenant(0)
	policy := updates[1].(model.PolicyUpdate).Policy
	for bit := 0; pods>>bit > 0; bit++ {
		policy.Ingress = append(policy.Ingress, model.Rule{Action: model.Allow, Index: bit,
			Source: model.Entity{Selector: selector.Equal(fmt.Sprint("bit", bit), "1")}})
	}
	if gone {
		updates[1] = noTenant()
	}
	for i := range pods {
		labels := map[string]string{}
		for bit := range policy.Ingress {
			labels[fmt.Sprint("bit", bit)] = fmt.Sprint((i + 1) >> bit & 1)
		}
		e := endpoint4(fmt.Sprint("crowd", i), "", netip.AddrFrom4([4]byte{10, 7, byte(i >> 8), byte(i)}).String(), labels)
		if gone {
			e.Endpoint = nil
		}
		updates = append(updates, e)
	}
	return updates
}

// smallClassSets has room for the classes of a stage, and not for those of a crowd.
var smallClassSets = map[string]uint32{bpf.MargayMapClassSets: 256, bpf.MargayMapIp4Host: 1024}

// wantStage checks that endpoint a judges as the stage means.
func (n *node) wantStage(t *testing.T, when string, s stage) {
	t.Helper()
	for _, src := range []string{"10.0.0.1", "10.0.0.2", "10.7.0.3"} {
		for _, port := range []uint16{80, 443} {
			if got, want := n.passesTo(t, tortureA, src, "10.0.0.10", port), s.allows(src, port); got != want {
				t.Errorf("%s: %s to port %d of a passes: %v, want %v", when, src, port, got, want)
			}
		}
	}
}

// A tenant whose pods are in more combinations of sets than the map holds concerns no other: tables judge the addresses of others that
// come to be in further combinations, before and after a restart, and what changed while no agent ran.
func TestCombinationsOfSetsOfOneTenantConcernNobodyElse(t *testing.T) {
	testutil.Privileged(t)
	dir := testutil.BPFFS(t)
	n := openNode(t, dir, smallClassSets)
	n.mustApply(t, stage{role: "other", allow: []string{"friend"}, ports: []uint16{80}}.updates()...)
	n.mustApply(t, crowd(400, false)...)
	if len(n.state.classes.unrecorded) < 100 {
		t.Fatalf("%d classes are unrecorded: the test tests nothing", len(n.state.classes.unrecorded))
	}
	var now stage
	for i := range 12 {
		now = stage{role: []string{"friend", "other", "stranger"}[i%3], allow: []string{"friend", "stranger"}[i%2:], ports: []uint16{80, 443}[i%2 : 1+i%2]}
		switch i % 4 {
		case 1: // a clean stop
			mustClose(t, n.BPF)
			n = openNode(t, dir, smallClassSets)
			n.graph.Apply(crowd(400, false))
		case 3: // the policy and the label of an address change while the agent is away
			mustClose(t, n.BPF)
			n = openNode(t, dir, smallClassSets)
			n.graph.Apply(crowd(350, false))
			n.graph.Apply(now.updates())
		}
		n.mustApply(t, now.updates()...)
		when := fmt.Sprint("round ", i)
		n.wantStage(t, when, now)
		for src, want := range map[string]bool{"10.7.0.3": true, "10.0.0.2": false} {
			if n.passesTo(t, evil, src, "10.0.9.1", 80) != want {
				t.Errorf("%s: %s to evil/m passes: %v", when, src, !want)
			}
		}
	}
	n.mustApply(t, crowd(400, true)...)
	n.wantStage(t, "without the crowd", now)
	mustClose(t, n.BPF)
	n = openNode(t, dir, smallClassSets)
	defer mustClose(t, n.BPF)
	n.mustApply(t, now.updates()...)
	n.wantStage(t, "without the crowd, after a restart", now)
}

// A policy that is walked needs the sets of all addresses. It is out of force while there is no room for them, and so not wrong.
func TestAWalkedPolicyIsOutOfForceWhileClassesAreUnrecorded(t *testing.T) {
	testutil.Privileged(t)
	n := openNode(t, testutil.BPFFS(t), smallClassSets)
	mustClose(t, n.BPF)
	c := n.config
	c.Interpret = true
	host := NewFakeHost()
	host.Ifaces = map[string]uint32{"calia": 1000, "cali2": 1003}
	dp, err := OpenBPF(c, host, n.kernel.log)
	if err != nil {
		t.Fatal(err)
	}
	n.BPF, n.host = dp, host
	defer mustClose(t, n.BPF)
	// As if no option had every policy walked.
	n.state.config.Interpret, n.state.classes.walked = false, false
	clock := time.Unix(0, 0)
	n.state.refusals.Retry = plans.NewBackoff(func() time.Time { return clock })

	now := stage{role: "friend", allow: []string{"friend"}, ports: []uint16{80}}
	n.mustApply(t, now.updates()...)
	n.wantStage(t, "before", now)
	n.graph.Apply(crowd(400, false))
	for i := range 3 {
		err := n.apply()
		if held := (*dataplane.HeldBack)(nil); !errors.As(err, &held) || !errors.Is(err, errUnrecorded) {
			t.Errorf("attempt %d: error %v, want that policies are held back for want of room", i, err)
		}
		if n.passesTo(t, tortureA, "10.0.0.1", "10.0.0.10", 80) || n.passesTo(t, evil, "10.7.0.3", "10.0.9.1", 80) {
			t.Errorf("attempt %d: a policy is walked for an address whose sets are not in the kernel", i)
		}
		clock = clock.Add(time.Minute)
	}
	n.graph.Apply(crowd(400, true))
	testutil.WaitFor(t, 20*time.Second, "packets to have left the classes that were dropped", func() bool {
		clock = clock.Add(time.Minute)
		return n.apply() == nil
	})
	n.wantStage(t, "afterwards", now)
	if len(n.state.classes.unrecorded) > 0 {
		t.Errorf("%d classes are unrecorded in the end", len(n.state.classes.unrecorded))
	}
}

// A staged policy that is walked is out of force, too: else it would count packets by sets that are not in the kernel.
func TestAWalkedStagedPolicyIsOutOfForceWhileClassesAreUnrecorded(t *testing.T) {
	testutil.Privileged(t)
	n := openNode(t, testutil.BPFFS(t), smallClassSets)
	defer mustClose(t, n.BPF)
	n.state.refusals.Retry = plans.NewBackoff(func() time.Time { return time.Unix(0, 0) })
	n.mustApply(t, append(stage{role: "friend", allow: []string{"friend"}, ports: []uint16{80}}.updates(), stagedDeny("draft", true))...)
	n.goOn(t)
	entry, ok := n.kernel.maps.Staged.Believed(1000)
	if !ok {
		t.Fatal("the staged policy is not in the kernel")
	}
	slot, _ := bpfmaps.SplitPolicyWord(entry.Ingress)
	for id, p := range n.state.tables.list { // as if there were no table of it
		p.walked = p.slot == slot
		n.state.tables.list[id] = p
	}
	if err := n.apply(crowd(400, false)...); err != nil && !errors.Is(err, errUnrecorded) {
		t.Fatal(err)
	}
	if len(n.state.classes.unrecorded) == 0 {
		t.Fatal("all classes are recorded: the test tests nothing")
	}
	if entry, ok = n.kernel.maps.Staged.Believed(1000); ok {
		t.Errorf("the walked staged policy is in force: %+v", entry)
	}
	if ep, _ := n.kernel.endpoints.Get(1000); ep.Flags&bpf.EPStagedIngress != 0 {
		t.Error("the endpoint has the flag of a staged policy")
	}
	if !n.passesTo(t, tortureA, "10.0.0.1", "10.0.0.10", 80) {
		t.Error("the policy that is enforced is out of force, too")
	}
}

// An agent that is killed while it records classes that have addresses leaves no class that the next one believes to be in fewer sets.
func TestAClassIsRecordedAsAWhole(t *testing.T) {
	full := map[uint32][]uint32{5: {3}, 6: {1, 600}, 7: {600, 1200}, 8: {2, 3, 511}}
	for most := range 12 { // writes until the kernel has no room, or the agent is killed
		kernel := bpfmaps.NewFake[bpf.ClassChunk, bpf.SetBits]("class_sets", 0)
		writes := 0
		faulty := &bpfmaps.Faulty[bpf.ClassChunk, bpf.SetBits]{Kernel: kernel, Refuse: func(bpf.ClassChunk, bool) error {
			if writes++; writes > most {
				return unix.E2BIG
			}
			return nil
		}}
		c := newClassSets(bpfmaps.NewTable[bpf.ClassChunk, bpf.SetBits](faulty), 100, false)
		c.open(leftSlots{})
		for class, sets := range full {
			c.unrecorded[class] = sets
		}
		err := c.record()
		if (err == nil) != (len(c.unrecorded) == 0) || c.sets.Pending() > 0 {
			t.Fatalf("%d writes: error %v, %d classes unrecorded, %d writes pending", most, err, len(c.unrecorded), c.sets.Pending())
		}
		next := newClassSets(bpfmaps.NewTable[bpf.ClassChunk, bpf.SetBits](kernel), 100, false)
		list, err2 := next.adopt()
		if err2 != nil {
			t.Fatal(err2)
		}
		for _, class := range list {
			if !reflect.DeepEqual(class.Sets, full[class.ID]) {
				t.Errorf("%d writes: class %d is in %v, believed to be in %v", most, class.ID, full[class.ID], class.Sets)
			}
		}
		if err == nil && len(list) != len(full) {
			t.Errorf("%d writes: %d classes are known to the next agent, want %d", most, len(list), len(full))
		}
		// A later attempt completes it.
		writes = -1000
		if err := c.record(); err != nil || len(c.unrecorded) > 0 {
			t.Errorf("%d writes: with room: %v, %d classes unrecorded", most, err, len(c.unrecorded))
		}
		known := map[uint32][]uint32{}
		again := newClassSets(bpfmaps.NewTable[bpf.ClassChunk, bpf.SetBits](kernel), 100, false)
		list, _ = again.adopt()
		for _, class := range list {
			known[class.ID] = class.Sets
		}
		if !reflect.DeepEqual(known, full) {
			t.Errorf("%d writes: with room the next agent knows %v", most, known)
		}
	}
}
