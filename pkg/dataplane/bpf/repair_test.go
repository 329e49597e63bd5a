package bpf

import (
	"testing"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/bpfmaps"
)

// TestAPolicyOfAnEarlierAgentThatIsAlteredIsRepaired: this agent never published it, and finds the change all the same.
func TestAPolicyOfAnEarlierAgentThatIsAlteredIsRepaired(t *testing.T) {
	testutil.Privileged(t)
	dir := testutil.BPFFS(t)
	first := openNode(t, dir, nil)
	first.mustApply(t, restartStages[0].updates()...)
	mustClose(t, first.BPF)
	n := openNode(t, dir, nil)
	defer mustClose(t, n.BPF)
	n.mustApply(t, restartStages[0].updates()...)
	before, _ := n.Kernel(tortureA)
	slot, _ := bpfmaps.SplitPolicyWord(before.Ingress)
	var id ebpf.MapID
	if err := n.kernel.maps.Map(bpf.MargayMapOutcomes).Lookup(&slot, &id); err != nil {
		t.Fatal(err)
	}
	outcomes, err := ebpf.NewMapFromID(id)
	if err != nil {
		t.Fatal(err)
	}
	defer outcomes.Close()
	for i := range outcomes.MaxEntries() {
		if err := outcomes.Put(i, bpf.Outcome{Action: bpf.RuleAllow}); err != nil {
			t.Fatal(err)
		}
	}
	if !passes(t, n.BPF, "10.0.0.2", 80) {
		t.Fatal("the damage has no effect: the test tests nothing")
	}
	n.Resync()
	n.mustApply(t)
	if passes(t, n.BPF, "10.0.0.2", 80) || !passes(t, n.BPF, "10.0.0.1", 80) {
		t.Error("the policy is not repaired")
	}
	if after, _ := n.Kernel(tortureA); uint32(after.Ingress) == uint32(before.Ingress) {
		t.Error("flows that were judged meanwhile are not judged again")
	}
}
