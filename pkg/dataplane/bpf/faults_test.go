package bpf

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/model"
)

// node is a dataplane on a host without a machine, and the graph that feeds it.
type node struct {
	*BPF
	host  *FakeHost
	graph *calc.Graph
}

func openNode(t *testing.T, dir string, entries map[string]uint32) *node {
	t.Helper()
	dp := openSmall(t, dir, entries)
	return &node{BPF: dp, host: dp.kernel.host.(*FakeHost), graph: calc.New("n")}
}

func (n *node) apply(updates ...model.Update) error {
	n.graph.Apply(updates)
	return n.Apply(context.Background(), n.graph.Flush())
}

func (n *node) mustApply(t *testing.T, updates ...model.Update) {
	t.Helper()
	if err := n.apply(updates...); err != nil {
		t.Fatal(err)
	}
}

// goOn applies until nothing is left for later: changes leave staged and large policies to the next Apply.
func (n *node) goOn(t *testing.T) {
	t.Helper()
	for n.Unfinished() {
		n.mustApply(t)
	}
}

// startNode opens a node that enforces the stage.
func startNode(t *testing.T, s stage) *node {
	t.Helper()
	testutil.Privileged(t)
	n := openNode(t, testutil.BPFFS(t), nil)
	t.Cleanup(func() { mustClose(t, n.BPF) })
	n.mustApply(t, s.updates()...)
	return n
}

func TestAnInterfaceThatCannotBeAttachedHoldsUpNobodyElse(t *testing.T) {
	n := startNode(t, stage{role: "friend", allow: []string{"friend"}, ports: []uint16{80}})
	refused := errors.New("refused")
	n.host.Fail[1001] = refused
	err := n.apply(stage{role: "friend", allow: []string{"friend"}, ports: []uint16{443}, more: 1}.updates()...)
	if !errors.Is(err, refused) || !strings.Contains(err.Error(), "t/a0 on cali0") {
		t.Errorf("error %v, want one that names t/a0 on cali0", err)
	}
	if passes(t, n.BPF, "10.0.0.1", 80) || !passes(t, n.BPF, "10.0.0.1", 443) {
		t.Error("the policy of a is not the new one")
	}
	if _, ok := n.Kernel(model.WorkloadID("t", "a0")); ok {
		t.Error("a0 is ready without programs on its interface")
	}
	if err := n.apply(stage{role: "friend", allow: []string{"friend"}, ports: []uint16{22}, more: 1}.updates()...); !errors.Is(err, refused) {
		t.Errorf("error %v, want %v still", err, refused)
	}
	if !passes(t, n.BPF, "10.0.0.1", 22) {
		t.Error("the next change of a's policy waits for a0")
	}
	delete(n.host.Fail, 1001)
	n.mustApply(t)
	if _, ok := n.Kernel(model.WorkloadID("t", "a0")); !ok {
		t.Error("a0 is not ready although its interface can be attached now")
	}
}

func TestProgramsThatCannotBeRepairedKeepNoPolicyBack(t *testing.T) {
	n := startNode(t, stage{role: "friend", allow: []string{"friend"}, ports: []uint16{80}})
	refused := errors.New("refused")
	n.host.Fail[1000] = refused
	n.Resync()
	if err := n.apply(stage{role: "friend", allow: []string{"friend"}, ports: []uint16{443}}.updates()...); !errors.Is(err, refused) {
		t.Fatalf("error %v, want %v", err, refused)
	}
	if passes(t, n.BPF, "10.0.0.1", 80) || !passes(t, n.BPF, "10.0.0.1", 443) {
		t.Error("the policy of a is not the new one")
	}
}

func TestAGuardThatCannotBeAttachedHoldsUpNoPolicy(t *testing.T) {
	testutil.Privileged(t)
	n := openNode(t, testutil.BPFFS(t), nil)
	defer mustClose(t, n.BPF)
	refused := errors.New("refused")
	n.host.Fail[0] = refused
	for _, port := range []uint16{80, 443} {
		if err := n.apply(stage{role: "friend", allow: []string{"friend"}, ports: []uint16{port}}.updates()...); !errors.Is(err, refused) {
			t.Fatalf("error %v, want %v", err, refused)
		}
		if !passes(t, n.BPF, "10.0.0.1", port) {
			t.Errorf("port %d is not open yet", port)
		}
	}
	delete(n.host.Fail, 0)
	if n.mustApply(t); !n.host.Guarded {
		t.Error("the guard was not tried again")
	}
}

func TestAnotherInterfaceUnderTheSameNameAndNumberGetsPrograms(t *testing.T) {
	n := startNode(t, restartStages[0])
	before := n.host.Ensured
	n.host.News = []uint32{1000, 4711}
	n.mustApply(t)
	if n.host.Ensured != before+1 {
		t.Errorf("Ensure was called %d times for an interface that something happened to, want once", n.host.Ensured-before)
	}
}

// Until a restarted agent has bound an endpoint anew, the earlier one's entry must not lose what lets its packets pass.
func TestGrownTablesAfterARestartLeaveTheRestOfAnEntryAlone(t *testing.T) {
	testutil.Privileged(t)
	dir := testutil.BPFFS(t)
	peer := Peer{Ifindex: 7, MAC: [6]byte{2, 0, 0, 0, 0, 7}, MTU: 1500}
	first := openNode(t, dir, nil)
	first.host.Peers[1000] = peer
	first.mustApply(t, restartStages[0].updates()...)
	mustClose(t, first.BPF)
	second := openNode(t, dir, nil)
	second.host.Peers[1000] = peer
	defer mustClose(t, second.BPF)
	second.graph.Apply(restartStages[0].updates())
	// Another endpoint's policy brings a class that a's table does not know.
	second.graph.Apply([]model.Update{torturePolicy("b", 2),
		endpoint4("b", "cali0", "10.0.0.11", map[string]string{"app": "b"}),
		endpoint4("odd", "", "10.0.0.3", map[string]string{"role": "nobody"})})
	second.state.plans.Plan, second.state.plans.Step = second.state.plans.Compiler.Update(second.graph.Flush()), 0
	if len(second.state.plans.Plan.Grow) == 0 {
		t.Fatal("nothing grows: the test tests nothing")
	}
	for _, s := range order {
		before, _ := second.kernel.endpoints.Get(1000)
		if err := s.do(second.state); err != nil {
			t.Fatalf("%s: %v", s.what, err)
		}
		after, _ := second.kernel.endpoints.Get(1000)
		after.Ingress, after.Egress = before.Ingress, before.Egress
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("%s: %s", s.what, diff)
		}
	}
}

func TestARevocationSurvivesAKill(t *testing.T) {
	testutil.Privileged(t)
	from := stage{role: "friend", allow: []string{"friend"}, ports: []uint16{80}}
	to := from
	to.role = "stranger"
	for steps := range len(order) + 1 {
		dir := testutil.BPFFS(t)
		first := openNode(t, dir, nil)
		first.mustApply(t, from.updates()...)
		before, _ := first.Kernel(tortureA)
		first.graph.Apply(to.updates())
		first.state.plans.Plan, first.state.plans.Step = first.state.plans.Compiler.Update(first.graph.Flush()), 0
		if len(first.state.plans.Plan.Rejudge) == 0 {
			t.Fatal("nothing is judged again: the test tests nothing")
		}
		for _, s := range order[:steps] {
			if err := s.do(first.state); err != nil {
				t.Fatalf("%s: %v", s.what, err)
			}
		}
		mustClose(t, first.BPF)
		second := openNode(t, dir, nil)
		second.mustApply(t, to.updates()...)
		if after, _ := second.Kernel(tortureA); uint32(after.Ingress) == uint32(before.Ingress) {
			t.Errorf("killed after %d steps: flows that the member which left had opened are not judged again", steps)
		}
		mustClose(t, second.BPF)
	}
}

func TestARestartWithoutChangesLeavesFlowsAlone(t *testing.T) {
	testutil.Privileged(t)
	dir := testutil.BPFFS(t)
	first := openNode(t, dir, nil)
	first.mustApply(t, restartStages[0].updates()...)
	before, _ := first.Kernel(tortureA)
	mustClose(t, first.BPF)
	second := openNode(t, dir, nil)
	defer mustClose(t, second.BPF)
	second.mustApply(t, restartStages[0].updates()...)
	if after, _ := second.Kernel(tortureA); uint32(after.Ingress) != uint32(before.Ingress) {
		t.Errorf("generation %d became %d", uint32(before.Ingress), uint32(after.Ingress))
	}
}

func TestAPolicyThatCannotBeReadBackIsPublishedAnew(t *testing.T) {
	testutil.Privileged(t)
	dir := testutil.BPFFS(t)
	first := openNode(t, dir, nil)
	first.mustApply(t, restartStages[0].updates()...)
	entry, _ := first.Kernel(tortureA)
	slot, _ := bpfmaps.SplitPolicyWord(entry.Ingress)
	shape := bpf.Slot{Rules: 1 << 20}
	if err := first.kernel.maps.Map(bpf.MargayMapSlots).Update(&slot, &shape, ebpf.UpdateAny); err != nil {
		t.Fatal(err)
	}
	mustClose(t, first.BPF)
	second := openNode(t, dir, nil)
	defer mustClose(t, second.BPF)
	second.mustApply(t, restartStages[0].updates()...)
	if !passes(t, second.BPF, "10.0.0.1", 80) || passes(t, second.BPF, "10.0.0.2", 80) {
		t.Error("the policy is not enforced")
	}
}

func TestASlotThatAnEntryRefersToIsNotReleased(t *testing.T) {
	n := startNode(t, stage{role: "friend", allow: []string{"friend"}, ports: []uint16{80}})
	entry, _ := n.Kernel(tortureA)
	slot, _ := bpfmaps.SplitPolicyWord(entry.Ingress)
	entry.Ifindex = loopback // as an endpoint that could not be written keeps its old policy
	if err := n.SetKernel(entry); err != nil {
		t.Fatal(err)
	}
	for _, port := range []uint16{443, 22} {
		n.mustApply(t, stage{role: "friend", allow: []string{"friend"}, ports: []uint16{port}}.updates()...)
		if !slices.Contains(n.state.tables.slots.Live(), slot) {
			t.Fatalf("slot %d is released while an entry refers to it", slot)
		}
	}
	if err := n.kernel.endpoints.Remove(loopback); err != nil {
		t.Fatal(err)
	}
	n.mustApply(t, stage{role: "friend", allow: []string{"friend"}, ports: []uint16{80}}.updates()...)
	if slices.Contains(n.state.tables.slots.Live(), slot) {
		t.Errorf("slot %d is never released", slot)
	}
}
