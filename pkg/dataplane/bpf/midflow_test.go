package bpf

import (
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/bpfmaps"
)

// TestAGracePeriodFollowsTheLossOfFlows: it is open until policy is in force and then has an end, and neither an agent that
// finds flows begins one, nor a later plan.
func TestAGracePeriodFollowsTheLossOfFlows(t *testing.T) {
	testutil.Privileged(t)
	dir, s := testutil.BPFFS(t), stage{role: "friend", allow: []string{"friend"}, ports: []uint16{80}}
	n := openNode(t, dir, nil)
	until := func() uint64 {
		t.Helper()
		end, err := n.kernel.maps.Flows.MidFlowGrace()
		if err != nil {
			t.Fatal(err)
		}
		return end
	}
	if until() != bpfmaps.OpenEnded {
		t.Errorf("with new tables and no policy yet the period ends at %d", until())
	}
	n.mustApply(t, s.updates()...)
	latest, err := bpfmaps.KernelTime(n.config.MidFlowGrace)
	if err != nil {
		t.Fatal(err)
	}
	end := until()
	if end > latest || end < latest-uint64(time.Minute) {
		t.Errorf("the period ends at %d, want it shortly before %d", end, latest)
	}
	s.ports = []uint16{81}
	n.mustApply(t, s.updates()...)
	if until() != end {
		t.Errorf("a later plan moved the end from %d to %d", end, until())
	}
	mustClose(t, n.BPF)
	n = openNode(t, dir, nil)
	t.Cleanup(func() { mustClose(t, n.BPF) })
	n.mustApply(t, s.updates()...)
	if until() != end {
		t.Errorf("an agent that found flows moved the end from %d to %d", end, until())
	}
}
