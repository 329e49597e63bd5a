package bpf

import (
	"testing"
	"time"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/model"
)

// TestFragmentsOfBeforeCountUntilTheKernelHasGivenThemUp: an endpoint passes them from the moment on at which the programs judge alone. The first
// resync after their time ends that, and no other one.
func TestFragmentsOfBeforeCountUntilTheKernelHasGivenThemUp(t *testing.T) {
	testutil.Privileged(t)
	d := openSmall(t, testutil.BPFFS(t), nil)
	defer mustClose(t, d)
	must(t, JudgeBeside(d, func(Successor) error { return nil }))
	graph := calc.New("n")
	graph.Apply([]model.Update{endpoint4("pod", "cali0", "10.0.2.1", nil), model.InSync{}})
	must(t, d.Apply(t.Context(), graph.Flush()))
	want := func(when string, flags uint32) {
		t.Helper()
		entry, _ := d.kernel.endpoints.Get(1001)
		if got := entry.Flags & (bpf.EPReady | bpf.EPBeside | bpf.EPBesideBefore); got != bpf.EPReady|flags {
			t.Errorf("%s: flags %#x, want %#x and ready", when, got, flags)
		}
	}
	want("while another dataplane judges", bpf.EPBeside|bpf.EPBesideBefore)
	must(t, JudgeAlone(d))
	want("alone", bpf.EPBesideBefore)
	resync := func() {
		t.Helper()
		d.Resync()
		must(t, d.Apply(t.Context(), model.Changes{}))
	}
	resync()
	want("after a resync", bpf.EPBesideBefore)
	d.kernel.other.until = time.Now()
	must(t, d.Apply(t.Context(), model.Changes{}))
	want("before the next resync", bpf.EPBesideBefore)
	resync()
	want("after it", 0)
	if n := d.Stats(false).Repairs; n != 0 {
		t.Errorf("%d repairs", n)
	}
}
