package bpf

import (
	"strings"
	"testing"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/calc"
)

// TestWhatIsStillToBeWrittenIsNotCompared: entries that the kernel has refused are not as desired, and the part has a reason instead of a
// fault. The other entries of the map are compared.
func TestWhatIsStillToBeWrittenIsNotCompared(t *testing.T) {
	testutil.Privileged(t)
	dp := openSmall(t, testutil.BPFFS(t), nil)
	defer mustClose(t, dp)
	v := dp.Verifier()
	faults := func() (skipped, faults string) {
		t.Helper()
		parts, err := v.NodeFaults()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range parts {
			faults += strings.Join(p.Faults, "\n")
			if p.Skipped != "" {
				skipped += p.Name + ": " + p.Skipped + "\n"
			}
		}
		return skipped, faults
	}
	if skipped, faults := faults(); skipped != "programs at netfilter's hooks: the agent has not attached all of them yet\n" || faults != "" {
		t.Errorf("before the first plan: skipped %q, faults %q", skipped, faults)
	}
	(&node{BPF: dp, graph: calc.New("n")}).mustApply(t, stage{}.updates()...)
	if skipped, faults := faults(); skipped+faults != "" {
		t.Errorf("at first: skipped %q, faults %q", skipped, faults)
	}
	staged := dp.kernel.maps.Staged
	staged.Set(4711, bpf.Staged{Ingress: 1})
	if skipped, faults := faults(); !strings.Contains(skipped, "map staged: ") || faults != "" {
		t.Errorf("one entry is still to be written: skipped %q, faults %q", skipped, faults)
	}
	key, value := uint32(4712), bpf.Staged{}
	if err := dp.kernel.maps.Map(bpf.MargayMapStaged).Put(&key, &value); err != nil {
		t.Fatal(err)
	}
	if skipped, faults := faults(); !strings.Contains(skipped, "map staged: ") || !strings.Contains(faults, "4712") {
		t.Errorf("and somebody has added another: skipped %q, faults %q", skipped, faults)
	}
}
